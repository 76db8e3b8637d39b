"""Tables of memory validations: peaks by problem, terms by kind of group."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from harness.estimates.memory import MemoryValidation, TermFound
from reports.core.formatting import figure, hundredths
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.estimates.table import off_by

_MIB = 2**20


def estimates_of(found: Sequence[MemoryValidation]) -> list[str]:
    """Return the names of the estimates."""
    return list(dict.fromkeys(name for one in found for name in one.ranks[0].whole.estimated))


def peaks_table(found: Sequence[MemoryValidation]) -> Table:
    """Return a row per problem: the largest measured peak, and each estimate's largest error."""

    def worst(name: str) -> TableColumn:
        return numbers(
            f"{name}\nlargest error", lambda row: max(map(abs, row.errors(name))), off_by
        )

    def mean(name: str) -> TableColumn:
        return numbers(
            f"{name}\nmean", lambda row: statistics.fmean(map(abs, row.errors(name))), off_by
        )

    return table_of(
        found,
        code("problem"),
        numbers("ranks", lambda row: len(row.ranks), str),
        numbers(
            "peak\nMiB", lambda row: max(rank.whole.measured for rank in row.ranks) / _MIB, figure
        ),
        *(column(name) for name in estimates_of(found) for column in (worst, mean)),
    )


def terms_table(found: Sequence[MemoryValidation]) -> Table:
    """Return a row per kind of table, optimizer and term: summed MiB, and estimate / measured.

    Terms that are 0 by measurement and by all estimates are left out.
    """
    rows: dict[tuple[str, str, str], list[TermFound]] = defaultdict(list)
    for one in found:
        for rank in one.ranks:
            for term in rank.terms:
                rows[term.group, rank.setting, term.term].append(term)
    shown = [
        (key, terms)
        for key, terms in sorted(rows.items(), key=lambda row: row[0][:2])
        if any(term.measured or any(term.estimated.values()) for term in terms)
    ]
    names = estimates_of(found)

    def measured(terms: Sequence[TermFound]) -> float:
        return sum(term.measured for term in terms) / _MIB

    def ratio(name: str) -> TableColumn:
        def value(row: tuple[object, Sequence[TermFound]]) -> float | None:
            terms = [term for term in row[1] if name in term.estimated]
            if not terms or not measured(terms):
                return None
            return sum(term.estimated[name] for term in terms) / _MIB / measured(terms)

        return numbers(f"{name}\n/ measured", value, hundredths)

    return table_of(
        shown,
        text("sharding type, kernel", lambda row: row[0][0]),
        text("optimizer", lambda row: row[0][1]),
        text("term", lambda row: row[0][2]),
        numbers("measured\nMiB", lambda row: measured(row[1]), figure),
        *(ratio(name) for name in names),
    )
