"""An explanation for people: on a terminal, or as Markdown."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.contract.explanation import Section, Value
from harness.planning.explain import Explained
from reports.escaping import markdown
from reports.formatting import seconds
from reports.tables.terminal import new_table

_WIDEST_WORD = 17


def shown(explained: Explained) -> RenderableType:
    """Show an explanation: a headline, its sentences, then its tables."""
    parts: list[RenderableType] = [Text(_headline(explained), style="bold")]
    parts += [_points(explained.explanation.sentences)]
    for section in explained.explanation.sections:
        parts += ["", _table(section)]
        if section.remarks:
            parts.append(_points(section.remarks, "dim"))
    return Group(*parts)


def _points(sentences: Iterable[str], style: str = "") -> RenderableType:
    """Show sentences below each other, each set off by a dash."""
    table = Table.grid(padding=(0, 1))
    for sentence in sentences:
        table.add_row("-", Text(sentence), style=style)
    return table


def as_markdown(explained: Explained) -> str:
    """Return an explanation as Markdown."""
    lines = [f"# {markdown(_headline(explained))}", ""]
    lines += [f"- {markdown(sentence)}" for sentence in explained.explanation.sentences]
    for section in explained.explanation.sections:
        lines += ["", f"## {markdown(section.title)}", ""]
        right = _numeric(section)
        lines.append(_row(" ".join(name.split("\n")) for name in section.columns))
        lines.append(_row(("---:" if name in right else "---" for name in section.columns), False))
        lines += [_row(map(_written, row)) for row in section.rows]
        if section.remarks:
            lines += ["", *(f"- {markdown(remark)}" for remark in section.remarks)]
    return "\n".join(lines) + "\n"


def _headline(explained: Explained) -> str:
    against = f" against {explained.against}" if explained.against else ""
    return f"{explained.cell}{against}, planned in {seconds(explained.planning_s, trim=True)}"


def _row(fields: Iterable[str], escaped: bool = True) -> str:
    return f"| {' | '.join(markdown(each) if escaped else each for each in fields)} |"


def _numeric(section: Section) -> list[str]:
    """Return the columns that hold a number in some row, and no words."""
    return [
        name
        for place, name in enumerate(section.columns)
        if any(isinstance(row[place], int | float) for row in section.rows)
        or all(str(row[place] or "")[-1:] in "%" for row in section.rows)
    ]


def _table(section: Section) -> RenderableType:
    numeric = _numeric(section)
    table = new_table(section.title, *section.columns, right=numeric)
    for place, column in enumerate(table.columns):
        if place and section.columns[place] not in numeric:  # words stay whole, but for long names
            words = (word for row in section.rows for word in _written(row[place]).split())
            column.min_width = min(max(map(len, words), default=0), _WIDEST_WORD)
    for row in section.rows:
        table.add_row(*(Text(_written(value)) for value in row))
    return table


def _written(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.01 or not value else f"{value:.2g}"
