"""Results files as cells and as DataFrames."""

import pytest
from made_up_results import (
    assert_in_order,
    cell,
    family_lines,
    over_budget,
    past_lines,
    results_of,
)


def test_a_row_per_cell_and_per_figure(tmp_path):
    """The four frames have a row per cell, quality, counter and phase."""
    results = results_of(tmp_path, family_lines())
    assert len(results.cells) == 30
    assert len(results.qualities) == len(results.counters) == 29 * 2
    assert results.qualities.groupby("name")["primary"].first().to_dict() == {
        "max_widget_ms": True,
        "imbalance": False,
    }
    phases = results.phases[results.phases["cell"] == results.cells["cell"][0]]
    assert phases["share"].sum() == pytest.approx(1.0)
    assert phases["seconds"].sum() == pytest.approx(results.cells["cpu_s"][0])


def on_machine(machine, **changes):
    line = cell(**changes)
    return line | {"environment": line["environment"] | {"machine": machine}}


def test_a_problem_is_of_the_machine_that_measured_it_last(tmp_path):
    """Times of different machines are never compared, and notes say what is left out."""
    variants = [on_machine(name) for name in ("aa", "bb", "aa")]
    other = on_machine("bb") | {"variant": "b", "cell": cell("b")["cell"]}
    results = results_of(tmp_path, [other, *variants, on_machine("bb", boxes=20)])
    assert results.cells["variant"].tolist() == ["slow-copy", "slow-copy"]
    assert results.cells["machine"].tolist() == ["aa", "bb"]
    assert "machine aa" in results.notes[0]
    assert results.notes[1].startswith("The cells are of 2 machines; each problem is of one")
    assert results_of(tmp_path, family_lines()).notes == ()


def test_a_later_comparison_with_another_variant_replaces_the_earlier_one(tmp_path):
    """Only the problem's last baseline is kept."""
    lines = [*family_lines((400,)), *past_lines((400,), ())]
    results = results_of(tmp_path, lines)
    assert set(results.cells["variant"]) == {"no-copy", "compiled", "certified", "sorted"}
    assert set(results.cells["against"]) == {"no-copy"}
    (note,) = results.notes
    assert_in_order(note, "boxes=400", "`no-copy`")


def test_a_stopped_call_has_the_size_of_the_problems_other_cells(tmp_path):
    """Its own line has none, because the problem was not built where it is stored."""
    lines = [cell(), over_budget("late", 10) | {"size": None, "size_name": None}]
    assert [each.size for each in results_of(tmp_path, lines).records] == [10, 10]
