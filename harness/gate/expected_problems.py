"""The problems of an expectations file, each to be measured with one comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from harness.contract import Family
from harness.contract.registry import Registry
from harness.gate.expectations import Expectation, Expectations
from harness.measuring.request import Request
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import CellId, ProblemId
from harness.topologies.lookup import placed_on


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an expectations file: its request, and its expectations by variant."""

    request: Request
    expected: Mapping[str, tuple[CellId, Expectation]]


def expected_problems(expectations: Expectations, families: Registry) -> list[Problem]:
    """Return a request for each problem, with the variants that have an expectation on it.

    Raises:
        ShardbenchError: the file has no cell.
        UsageError: the family, variant, workload or topology of a cell is unknown, or cells of one
            problem have different `against` variants.
    """
    if not expectations.cells:
        raise ShardbenchError("The expectations name no cell, so there is nothing to measure.")
    grouped: dict[tuple[str, ProblemId], list[tuple[CellId, Expectation]]] = {}
    rows = expectations.cells.items()
    # `given` stands at one cell of a problem, and counts for all.
    shared = {(cell.family, cell.problem): row.given for cell, row in rows if row.given}
    for cell, row in rows:
        own = row.given or shared.get((cell.family, cell.problem), "")
        expected = replace(row, given=own)
        given = ProblemId.parse(expected.given) if expected.given else cell.problem
        grouped.setdefault((cell.family, given), []).append((cell, expected))
    return [
        _problem(families.find(family), given, cells) for (family, given), cells in grouped.items()
    ]


def _problem(
    family: Family[Any, Any],
    given: ProblemId,
    cells: Sequence[tuple[CellId, Expectation]],
) -> Problem:
    expected: dict[str, tuple[CellId, Expectation]] = {}
    for cell, expectation in cells:
        if cell.variant in expected:
            raise UsageError(f"'{cell}' and '{expected[cell.variant][0]}' are the same cell.")
        expected[cell.variant] = cell, expectation
    names = {row.against or family.reference.name for _, row in expected.values()}
    if len(names) > 1:
        raise UsageError(
            f"'{given}' is compared with {' and '.join(sorted(names))}; the cells of one problem "
            "must have the same 'against'."
        )
    against = names.pop()
    limits = {
        name: row.ratio[1]
        for name, (_, row) in expected.items()
        if row.ratio and "ratio" not in row.ignore
    }
    topology = placed_on(family, given.workload, given.topology, given.gpus)
    request = Request(
        family, given.workload, topology, tuple(expected), against, "gate", limits=limits
    )
    request.names()  # raises for an unknown variant
    str(request.problem)  # raises for an unknown workload
    return Problem(request, expected)


def first_suite(families: Registry) -> tuple[Expectations, list[str]]:
    """Return expectations without figures for a small suite, and why families are left out.

    The suite has the first benchmark of each family, or else the problem of its first study. On it
    our variants of the first system are compared with today's release, or, without a headline,
    the variants of the study with the reference.
    """
    cells: dict[CellId, Expectation] = {}
    left_out = []
    for family in families.families:
        problems = (*family.benchmarks, *(study.problem for study in family.studies))
        headlines = [found for found in family.statements if found.use == "headline"]
        against = headlines[0].pairs[-1].before if headlines else family.reference.name
        system = [found for found in headlines if found.name == headlines[0].name]
        studied = family.studies[0].variants if family.studies else ()
        names = [against, *([found.pairs[-1].after for found in system] or studied)]
        found = [family.find(name) for name in dict.fromkeys(names)]
        if not problems:
            left_out.append(f"{family.name} declares no problem, so it is left out.")
        elif missing := family.find(against).missing():
            left_out.append(f"{family.name} is left out: it needs {', '.join(missing)}.")
        else:
            problem = ProblemId.parse(problems[0])
            for variant in found:
                if not variant.missing():
                    cells[CellId(family.name, variant.name, problem)] = Expectation(against=against)
    return Expectations(cells), left_out


def as_results_name_them(
    expectations: Expectations, problems: Sequence[Problem]
) -> tuple[Expectations, dict[CellId, CellId]]:
    """Return the expectations by the ids in results, and the changed ids as an old-to-new map.

    Results identify the file of a workload or topology by a hash of its content. If an expectation
    already has such an id and the hash differs, the file has changed: its figures are dropped.
    """
    cells: dict[CellId, Expectation] = {}
    changed: dict[CellId, CellId] = {}
    for problem in problems:
        for variant, (before, expected) in problem.expected.items():
            cell = problem.request.cell_id(variant)
            if cell in cells:
                raise UsageError(f"'{cell}' is expected twice.")
            cells[cell] = expected
            if cell != before and expected.given:
                changed[before] = cell
                cells[cell] = Expectation(expected.given, expected.against, ignore=expected.ignore)
            elif cell != before:
                cells[cell] = replace(expected, given=str(before.problem))
    return Expectations(cells, expectations.rules), changed
