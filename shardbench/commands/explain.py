"""`shardbench explain`: explain a variant's decision."""

from dataclasses import replace
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.planning import Section
from harness.measuring.request import Request
from harness.model.errors import InfeasibleDecision, UsageError
from harness.planning.plan import Explained, explain as make_explanation
from reports.core.formatting import figure, markdown, number, seconds
from reports.core.table import Table, TableColumn, as_markdown, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench import display, options, problems
from shardbench.command import command
from shardbench.commands.plan import plan_with_remedy
from shardbench.progress import progress_display

_WIDEST_WORD = 17


@command("shardbench explain embedding/certified -w dlrm-856 -t dgx_h100 -n 16")
@problems.problem
@options.against
@click.option("--rank", type=int, help="The rank to look at; the heaviest unless given.")
@click.option("--top", type=click.IntRange(min=1), default=3, help="How many parts to detail.")
@click.option("--table", default="", help="Explain the placement of this table alone.")
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
        raise UsageError(f"Name the variant to explain: FAMILY/VARIANT, or one id, {problems.ID}.")
    try:
        with progress_display() as progress:
            asked = replace(request, against=against)
            made = make_explanation(asked, rank, top, table, begins=progress.stage)
    except InfeasibleDecision as error:
        plan_with_remedy(request, error)  # shows the changes that help, and exits
        return
    if out is None:
        display.show(shown(made))
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
        options.write_json(out, document)
    else:
        options.write(out, _markdown(made))
    for sentence in made.explanation.sentences:
        print(sentence)
    options.messages.print(f"Wrote {out}")


def shown(explained: Explained) -> RenderableType:
    """Render an explanation: a headline, its sentences, then its tables."""
    parts: list[RenderableType] = [Text(_title(explained), style="bold")]
    parts.append(display.listed(explained.explanation.sentences))
    for section in explained.explanation.sections:
        parts += ["", as_terminal(_table(section), section.title)]
        if section.remarks:
            parts.append(display.listed(section.remarks, style="dim"))
    return Group(*parts)


def _markdown(explained: Explained) -> str:
    lines = [f"# {markdown(_title(explained))}", ""]
    lines += [f"- {markdown(sentence)}" for sentence in explained.explanation.sentences]
    for section in explained.explanation.sections:
        lines += ["", f"## {markdown(section.title)}", "", as_markdown(_table(section))]
        if section.remarks:
            lines += ["", *(f"- {markdown(remark)}" for remark in section.remarks)]
    return "\n".join(lines) + "\n"


def _title(explained: Explained) -> str:
    against = f" against {explained.against}" if explained.against else ""
    return f"{explained.cell}{against}, planned in {seconds(explained.planning_s, trim=True)}"


def _table(section: Section) -> Table:
    return table_of(section.rows, *(_column(section, n) for n in range(len(section.columns))))


def _column(section: Section, place: int) -> TableColumn:
    """Return column `place`, as numbers if any value is a number or all end in %, else as text."""
    values = [row[place] for row in section.rows]
    is_numeric = any(isinstance(value, int | float) for value in values)
    if is_numeric or all(str(value or "")[-1:] in "%" for value in values):
        return numbers(section.columns[place], place, _small_or_figure)
    return text(section.columns[place], place, least=_WIDEST_WORD if place else 0)


def _small_or_figure(value: float) -> str:
    return number(float(value), 2, trim=True) if abs(value) < 0.01 else figure(value)
