"""`shardbench explain`: explain a variant's decision."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from harness.model.errors import InfeasibleDecision, UsageError
from harness.planning.explain import Explained, explain as make_explanation
from harness.store.results import to_json
from shardbench import display
from shardbench.commands.plan import show_remedies
from shardbench.display.plan import explanation_markdown, explanation_shown
from shardbench.options import check_out, found_registry, messages, write
from shardbench.problem_options import (
    ID,
    Against,
    AnyProblem,
    GpusIfAny,
    TopologyIfAny,
    WorkloadIfAny,
    find_problem,
)
from shardbench.progress import stage_display

FORMAT = "shardbench-explanation"
VERSION = 1


def explain(
    cell: AnyProblem,
    workload: WorkloadIfAny = None,
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    against: Against = "",
    rank: Annotated[
        int | None, typer.Option(help="The rank to look at; the heaviest unless given.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many parts of it to show in detail.")] = 3,
    table: Annotated[
        str, typer.Option(help="Explain the placement of this table, with every option it has.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it to a file, .md or .json.")
    ] = None,
) -> None:
    """Explain a decision, and show the costs of alternatives.

    With --against, shows the differences between two decisions and their effect.
    """
    request = find_problem(found_registry(), cell, workload, topology, gpus)
    if not request.variants:
        raise UsageError(f"Name the variant to explain: FAMILY/VARIANT, or one id, {ID}.")
    check_out(out, ".md", ".json")
    try:
        with stage_display() as begins:
            asked = replace(request, against=against)
            made = make_explanation(asked, rank, top, table, begins=begins)
    except InfeasibleDecision as error:
        show_remedies(request, error)
        raise typer.Exit(1) from None
    if out is None:
        display.show(explanation_shown(made))
        return
    write(out, _document(made) if out.suffix.lower() == ".json" else explanation_markdown(made))
    for sentence in made.explanation.sentences:
        print(sentence)
    messages.print(f"Wrote {out}")


def _document(made: Explained) -> str:
    held = {
        "format": FORMAT,
        "version": VERSION,
        "cell": str(made.cell),
        "against": made.against,
        "planning_s": made.planning_s,
        "sentences": list(made.explanation.sentences),
        "explanation": made.explanation.document,
    }
    return to_json(held, indent=2) + "\n"
