"""The output of `shardbench explain`: on a terminal, or as Markdown."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from harness.contract.abilities.explanation import Section, Value
from harness.planning.explain import Explained
from reports.core.escaping import markdown
from reports.core.formatting import figure, number, seconds
from reports.core.table import Entry, Table, TableColumn, as_markdown, numbers, table_of, text
from reports.core.terminal import as_terminal

_WIDEST_WORD = 17


def shown(explained: Explained) -> RenderableType:
    """Render an explanation: a headline, its sentences, then its tables."""
    parts: list[RenderableType] = [Text(_headline(explained), style="bold")]
    parts.append(bullets(explained.explanation.sentences))
    for section in explained.explanation.sections:
        parts += ["", as_terminal(_table(section), section.title)]
        if section.remarks:
            parts.append(bullets(section.remarks, "dim"))
    return Group(*parts)


def bullets(sentences: Iterable[str], style: str = "") -> RenderableType:
    """Render sentences as a list with dashes."""
    return listed((("-", sentence) for sentence in sentences), style)


def listed(rows: Iterable[tuple[str, str]], style: str = "") -> RenderableType:
    """Render pairs of a mark and a sentence as a list."""
    table = RichTable.grid(padding=(0, 1))
    for mark, sentence in rows:
        table.add_row(mark, Text(sentence), style=style)
    return table


def to_markdown(explained: Explained) -> str:
    """Return an explanation as Markdown."""
    lines = [f"# {markdown(_headline(explained))}", ""]
    lines += [f"- {markdown(sentence)}" for sentence in explained.explanation.sentences]
    for section in explained.explanation.sections:
        lines += ["", f"## {markdown(section.title)}", "", as_markdown(_table(section))]
        if section.remarks:
            lines += ["", *(f"- {markdown(remark)}" for remark in section.remarks)]
    return "\n".join(lines) + "\n"


def _headline(explained: Explained) -> str:
    against = f" against {explained.against}" if explained.against else ""
    return f"{explained.cell}{against}, planned in {seconds(explained.planning_s, trim=True)}"


def _table(section: Section) -> Table:
    columns = (_column(section, place) for place in range(len(section.columns)))
    return table_of(section.rows, *columns)


def _column(section: Section, place: int) -> TableColumn:
    """Return column `place`, as numbers if any value is a number or all end in %, else as text."""
    title = section.columns[place]
    values = [row[place] for row in section.rows]
    is_numeric = any(isinstance(value, int | float) for value in values)
    if is_numeric or all(str(value or "")[-1:] in "%" for value in values):
        return numbers(title, lambda row: _entry(row[place]))
    return text(title, lambda row: _entry(row[place]), least=_WIDEST_WORD if place else 0)


def _entry(value: Value) -> Entry | None:
    if value is None or isinstance(value, str):
        return None if value is None else Entry(value)
    small = abs(value) < 0.01
    return Entry(number(float(value), 2, trim=True) if small else figure(value), value)
