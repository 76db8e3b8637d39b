"""`shardbench explain`: explain a variant's decision."""

from dataclasses import replace
from pathlib import Path

import click

from harness.measuring.request import Request
from harness.model.errors import InfeasibleDecision, UsageError
from harness.model.files import to_json
from harness.planning.plan import explain as make_explanation
from shardbench import display, options, problem_options
from shardbench.command import command
from shardbench.commands.plan import show_remedies
from shardbench.display.plan import explanation_markdown, explanation_shown
from shardbench.progress import progress_display


@command("shardbench explain embedding/certified -w dlrm-856 -t dgx_h100 -n 16")
@problem_options.problem
@problem_options.against
@click.option("--rank", type=int, help="The rank to look at; the heaviest unless given.")
@click.option(
    "--top", type=click.IntRange(min=1), default=3, help="How many parts of it to show in detail."
)
@click.option(
    "--table", default="", help="Explain the placement of this table, with every option it has."
)
@click.option(
    "--out", "-o", type=options.OutFile(".md", ".json"), help="Write it to a file, .md or .json."
)
def explain(
    request: Request, against: str, rank: int | None, top: int, table: str, out: Path | None
) -> None:
    """Explain a decision, and show the costs of alternatives.

    With --against, shows the differences between two decisions and their effect.
    """
    if not request.variants:
        raise UsageError(
            f"Name the variant to explain: FAMILY/VARIANT, or one id, {problem_options.ID}."
        )
    try:
        with progress_display() as progress:
            asked = replace(request, against=against)
            made = make_explanation(asked, rank, top, table, begins=progress.stage)
    except InfeasibleDecision as error:
        show_remedies(request, error)
        raise click.exceptions.Exit(1) from None
    if out is None:
        display.show(explanation_shown(made))
        return
    if out.suffix.lower() == ".json":
        document = {
            "format": "shardbench-explanation",
            "version": 1,
            "cell": str(made.cell),
            "against": made.against,
            "planning_s": made.planning_s,
            "sentences": list(made.explanation.sentences),
            "explanation": made.explanation.document,
        }
        options.write(out, to_json(document, indent=2) + "\n")
    else:
        options.write(out, explanation_markdown(made))
    for sentence in made.explanation.sentences:
        print(sentence)
    options.messages.print(f"Wrote {out}")
