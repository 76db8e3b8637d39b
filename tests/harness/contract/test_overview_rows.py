"""A family's overview rows are stored with the cells that they use, or refused."""

from dataclasses import replace as replaced

import pytest
import toy
from msgspec.structs import replace

from harness.contract import OverviewRow
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"
ROW = OverviewRow("Toys", PROBLEM, today="reference", ours="same")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"today": "sane"}, "names variant 'sane', which is not registered."),
        ({"best": "sane"}, "names variant 'sane', which is not registered."),
        ({"counter": "copies"}, "names counter 'copies', which it does not have."),
        (
            {"rated_on": "toy"},
            "is malformed: Problem 'toy' is malformed; write workload/topology:gpus, e.g. "
            "dlrm-856/dgx_h100:16.",
        ),
    ],
)
def test_what_the_family_does_not_have_is_refused(changes: dict, sentence: str):
    (family,) = toy.toy_registry().families
    with pytest.raises(RegistryError) as refused:
        Registry([replaced(family, overview=(replace(ROW, **changes),))])
    assert str(refused.value) == f"Overview row 'Toys' of family 'toy' {sentence}"


def test_cells_hold_the_rows_that_are_about_their_problem():
    workload, topology = WorkloadSpec("toy", {"size": "4"}), find_topology("dgx_a100_80gb", 2)
    request = Request(toy.overview_registry().find("toy"), workload, topology, ("same",), "")
    rule = SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05)
    cells = list(Comparison(request, Settings(60.0, rule), toy.overview_registry).run())
    assert len(cells) == 2
    for cell in cells:
        assert [row.system for row in cell.overview] == ["Toys", "Rated"]
        assert Cell.of(cell.record()).overview == cell.overview
