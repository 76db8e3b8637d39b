"""Planning time against the size of a problem, as figure and table."""

from reports.core.formatting import count, hundredths, interval
from reports.core.table import Entry, Table, code, numbers, table_of
from reports.family.data import FamilyView, Row, rows_of


def growth_table(family: FamilyView) -> Table:
    """Return a row per variant and sweep, with its fitted exponent."""
    return table_of(
        rows_of(family.exponents),
        code("variant"),
        code("problems", "sweep"),
        numbers("sizes", write=count),
        numbers("range", lambda row: _range(row) if row["sizes"] else None),
        numbers("exponent", write=hundredths),
        numbers("95 % interval", _exponents),
        numbers("over budget from", "over_budget", count),
    )


def _range(row: Row) -> Entry:
    return Entry(f"{count(row['smallest'])} to {count(row['largest'])}", row["largest"])


def _exponents(row: Row) -> Entry:
    return Entry(interval(row["low"], row["high"], hundredths), row["low"])
