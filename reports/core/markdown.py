"""Tables as Markdown."""

from reports.core.escaping import code_in_table, markdown
from reports.core.table import Entry, Table


def as_markdown(table: Table) -> str:
    """Return a table's lines as Markdown, every field escaped."""
    kinds = [column.kind for column in table.columns]
    rules = ("---:" if kind == "number" else "---" for kind in kinds)
    lines = [map(markdown, (column.title for column in table.columns)), rules]
    lines += [map(_field, row, kinds) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _field(entry: Entry, kind: str) -> str:
    if entry.link:
        return f"[{markdown(entry.text)}]({entry.link})"
    return code_in_table(entry.text) if kind == "code" and entry.text else markdown(entry.text)
