"""Comparisons with another variant than the family's reference."""

from collections.abc import Callable, Iterator
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest
import toy
from msgspec.structs import replace

from harness.contract import Family, Study
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.cell import Cell, projected_speedup
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore, read_cells
from harness.suites.declared import registered_requests
from harness.suites.sweep import resumed, sweep, tasks_of
from harness.topologies.lookup import find_topology

SETTINGS = Settings(60.0, SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05))


def compare(
    against: str,
    *variants: str,
    budget: float = 60.0,
    registry: Callable[[], Registry] = toy.toy_registry,
    size: int = 6,
) -> dict[str, Cell]:
    workload = WorkloadSpec("toy", {"size": str(size)})
    topology = find_topology("dgx_a100_80gb", 2)
    request = Request(registry().find("toy"), workload, topology, variants, against)
    comparison = Comparison(request, replace(SETTINGS, budget=budget), registry)
    return {cell.variant: cell for cell in comparison.run()}


@pytest.fixture(scope="module")
def cells() -> dict[str, Cell]:
    return compare("same", "own", "plain", "different")


def test_it_takes_the_place_of_the_reference(cells: dict[str, Cell]):
    assert list(cells) == ["same", "different", "own", "plain"]
    assert {cell.against for cell in cells.values()} == {"same"}
    assert {cell.reference for cell in cells.values()} == {"reference"}
    assert cells["same"].decision == "reference"
    assert (cells["same"].ratio, cells["same"].verdict) == (None, None)
    assert cells["own"].ratio is not None
    assert cells["own"].ratio.value < 0.5, "a call of `own` is shorter than one of `same`"


def test_decisions_must_be_the_same_as_before(cells: dict[str, Cell]):
    decisions = {name: cell.decision for name, cell in cells.items()}
    assert decisions == {
        "same": "reference",
        "different": "different",
        "own": "own",
        "plain": "same",
    }
    assert cells["different"].cpu_s is None


@pytest.mark.parametrize(("against", "decision"), [("plain", "same"), ("different", "different")])
def test_the_family_s_reference_is_compared_like_any_other(against: str, decision: str):
    cells = compare(against, "reference")
    assert cells["reference"].decision == decision
    assert (cells["reference"].ratio is None) == (decision == "different")


def test_where_it_is_over_budget_there_is_a_projection_at_most():
    cells = compare("endless", "own", "plain", budget=1.0)
    against, own = cells["endless"], cells["own"]
    assert against.status == "over budget"
    assert (own.ratio, own.verdict) == (None, None)
    assert own.wall_s is not None
    projected = projected_speedup(own, against)
    assert projected == against.projection_s / own.wall_s.median
    assert projected_speedup(against, against) is None
    assert projected_speedup(own, cells["plain"]) is None


class TestSweep:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Iterator[Path]:
        return tmp_path / "results.jsonl"

    def test_a_study_says_what_it_is_against(self, path: Path):
        (family,) = toy.bounded_registry().families

        def planned(family: Family[Any, Any] = family, large: bool = False) -> list[Request]:
            tasks = tasks_of(registered_requests([family], large), SETTINGS)
            return resumed(tasks, CellStore(path))

        requests = planned()
        assert [each.purpose for each in requests] == ["against another"]
        assert [each.is_measured for each in requests] == [False]
        list(sweep(requests, CellStore(path), SETTINGS, registry=toy.bounded_registry))
        cells = read_cells(path)
        assert {cell.variant: cell.against for cell in cells} == {"same": "same", "own": "same"}
        assert [each.is_measured for each in planned()] == [True]

        large = planned(large=True)
        assert [each.purpose for each in large] == ["against another", "large"]
        assert [each.is_measured for each in large] == [True, False]

        other = replaced(family, studies=(replaced(family.studies[0], against="own"),))
        assert [each.is_measured for each in planned(other)] == [False]

    def test_a_variant_that_is_not_there_is_named_before_anything_runs(self, path: Path):
        for study in (
            Study("toy[size=4]/dgx_a100_80gb:2", ("own",), "lost", against="sane"),
            Study("toy[size=4]/dgx_a100_80gb:2", ("sane",), "lost"),
        ):
            with pytest.raises(UsageError, match="Unknown variant of family 'toy', 'sane'"):
                tasks_of(registered_requests([replaced(toy.TOY, studies=(study,))]), SETTINGS)
