import math
import random

import pytest
from hypothesis import given, strategies as st
from made_up_results import cell, family_lines, over_budget, results_of

from reports.family.scaling import exponents, fit_exponent, long_series, sweeps, without_parameter


@given(
    exponent=st.floats(-2, 4),
    coefficient=st.floats(1e-6, 1e3),
    sizes=st.lists(st.integers(1, 10_000), min_size=3, max_size=8, unique=True),
)
def test_a_power_law_is_recovered(exponent, coefficient, sizes):
    fit = fit_exponent(sizes, [coefficient * size**exponent for size in sizes])
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-5)
    assert fit.low - 1e-9 <= fit.exponent <= fit.high + 1e-9


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    noise, sizes = random.Random(1), [10, 20, 40, 80]
    held = 0
    for _ in range(1000):
        fit = fit_exponent(sizes, [size**1.5 * math.exp(noise.gauss(0, 0.1)) for size in sizes])
        held += fit.low <= 1.5 <= fit.high
    assert 930 <= held <= 970


@pytest.mark.parametrize("sizes", [[], [10], [10, 20], [10, 20, 10, 20]])
def test_fewer_than_three_sizes_give_no_exponent(sizes):
    assert fit_exponent(sizes, [1.0] * len(sizes)) is None


def test_a_workload_without_its_size():
    assert without_parameter("w[tables=20,seed=1]", "tables") == "w[seed=1]"
    assert without_parameter("w[tables=20]", "tables") == "w"
    assert without_parameter("w", "tables") == "w"
    assert without_parameter("w[seed=1,tables2=3]", "tables") == "w[seed=1,tables2=3]"


def points(tmp_path, lines):
    return sweeps(results_of(tmp_path, lines).cells)


def test_only_problems_that_differ_in_size_alone_are_fitted_together(tmp_path):
    other = cell(boxes=160, workload="crates[boxes=160,seed=2]")
    other["cell"] = "boxing/slow-copy@crates[boxes=160,seed=2]/toy_rack:4"
    found = points(tmp_path, [*family_lines(), other])
    assert set(found["sweep"]) == {"crates[seed=1]/toy_rack:4"}
    assert found["size"].max() == 80
    fits = exponents(found).set_index("variant")["exponent"]
    assert fits["slow-copy"] == pytest.approx(1.5)
    assert fits["even"] == pytest.approx(1.0)


def test_a_projection_is_shown_and_takes_no_part_in_the_fit(tmp_path):
    found = points(tmp_path, family_lines())
    hollow = found[found["projected"]]
    assert hollow["variant"].tolist() == ["exhaustive"]
    assert hollow["seconds"].tolist() == [1909.0]
    fit = exponents(found).set_index("variant").loc["exhaustive"]
    assert (fit["sizes"], fit["exponent"]) == (4, pytest.approx(2.5))


def test_series_on_fewer_than_five_sizes_are_left_out(tmp_path):
    lines = [line for line in family_lines() if (line["variant"], line["size"]) != ("even", 5)]
    found = points(tmp_path, lines)
    assert "even" in set(found["variant"])
    assert set(long_series(found)["variant"]) == {*found["variant"]} - {"even"}
    assert long_series(points(tmp_path, [cell()])).empty


def test_what_failed_or_decided_differently_is_not_fitted(tmp_path):
    lines = [cell(boxes=boxes, seconds=boxes) for boxes in (10, 20, 40)]
    lines[1] |= {"status": "failed"}
    lines += [cell("odd", boxes=boxes, decision="different") for boxes in (10, 20, 40)]
    found = points(tmp_path, lines)
    assert set(found["variant"]) == {"slow-copy"}
    assert exponents(found)["exponent"].isna().all()


def test_no_sweep_where_there_is_one_size_or_none(tmp_path):
    assert points(tmp_path, [cell()]).empty
    unsized = [cell(), cell("b"), over_budget("c", 10)]
    assert points(tmp_path, [line | {"size": None} for line in unsized]).empty
    assert exponents(points(tmp_path, [cell()])).empty


def test_the_only_number_of_a_workload_sets_its_size_where_no_parameter_has_its_name(tmp_path):
    lines = []
    for params in (10, 20, 40):
        workload = f"step[kind=fused,params={params}]"
        named = {"workload": workload, "cell": f"boxing/slow-copy@{workload}/toy_rack:4"}
        lines.append(cell(**named, size_name="ops", size=3 * params + 1))
    found = points(tmp_path, lines)
    assert set(found["sweep"]) == {"step[kind=fused]/toy_rack:4"}
    assert sorted(found["size"]) == [31, 61, 121]


def test_sizes_that_grow_with_the_gpus_are_one_sweep(tmp_path):
    lines = []
    for doublings in range(5):
        boxes, gpus = 10 * 2**doublings, 4 * 2**doublings
        line = cell(boxes=boxes, gpus=gpus, seconds=1.5 * boxes)
        lines.append(line | {"cell": f"{line['cell'].rpartition(':')[0]}:{gpus}"})
    found = points(tmp_path, lines)
    assert set(found["sweep"]) == {"crates[seed=1]/toy_rack"}
    assert set(found["size_name"]) == {"sqrt(boxes * GPUs)"}
    assert found["size"].tolist() == [math.sqrt(40) * 2**n for n in range(5)]
    assert exponents(found)["exponent"].tolist() == [pytest.approx(1.0)]
    assert points(tmp_path, lines[:1]).empty
