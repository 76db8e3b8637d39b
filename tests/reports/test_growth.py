"""The growth of planning time with the size of problems."""

import math
import random

import pytest
from hypothesis import given, strategies as st
from made_up_results import cell, family_lines, results_of

from reports.family.growth import fit_exponent, series_of


@given(
    exponent=st.floats(-2, 4),
    coefficient=st.floats(1e-6, 1e3),
    sizes=st.lists(st.integers(1, 10_000), min_size=3, max_size=8, unique=True),
)
def test_a_power_law_is_recovered(exponent, coefficient, sizes):
    """Times without noise give their exponent."""
    fit = fit_exponent(sizes, [coefficient * size**exponent for size in sizes])
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-5)
    assert fit.low - 1e-9 <= fit.exponent <= fit.high + 1e-9


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    """Of 1,000 noisy series, 95 % of the intervals contain the exponent."""
    noise, sizes = random.Random(1), [10, 20, 40, 80]
    fits = [
        fit_exponent(sizes, [size**1.5 * math.exp(noise.gauss(0, 0.1)) for size in sizes])
        for _ in range(1000)
    ]
    assert 930 <= sum(fit.low <= 1.5 <= fit.high for fit in fits) <= 970


@pytest.mark.parametrize("sizes", [[], [10], [10, 20], [10, 20, 10, 20]])
def test_fewer_than_three_sizes_give_no_exponent(sizes):
    """Two points leave no error to estimate."""
    assert fit_exponent(sizes, [1.0] * len(sizes)) is None


def series(tmp_path, lines, least_sizes=1):
    found = series_of(results_of(tmp_path, lines).records, least_sizes)
    return {(each.sweep, each.variant): each for each in found}


def test_problems_that_differ_only_in_size_are_one_sweep(tmp_path):
    """A problem with another seed is no part of it; a projection takes no part in the fit."""
    other = cell(boxes=160, workload="crates[boxes=160,seed=2]")
    other["cell"] = "boxing/slow-copy@crates[boxes=160,seed=2]/toy_rack:4"
    found = series(tmp_path, [*family_lines(), other])
    assert {sweep for sweep, _ in found} == {"crates[seed=1]/toy_rack:4"}
    fits = {variant: each.fit.exponent for (_, variant), each in found.items()}
    assert fits["slow-copy"] == pytest.approx(1.5)
    assert fits["exhaustive"] == pytest.approx(2.5)
    (*measured, last) = found["crates[seed=1]/toy_rack:4", "exhaustive"].points
    assert (len(measured), last.size, last.seconds) == (4, 80, 1909.0)
    assert last.kind == "projected"


def test_short_series_failures_and_different_decisions_are_left_out(tmp_path):
    """A series needs five sizes, each with a time of the decision that must be made."""
    lines = [line for line in family_lines() if (line["variant"], line["size"]) != ("even", 5)]
    lines += [cell("odd", boxes=n, decision="different") for n in (5, 10, 20, 40, 80)]
    lines += [cell("bad", boxes=n, status="failed") for n in (5, 10, 20, 40, 80)]
    variants = {variant for _, variant in series(tmp_path, lines, 5)}
    assert variants == {"slow-copy", "half-copy", "quick-copy", "no-copy", "exhaustive"}
    assert series(tmp_path, [cell()]) == {}


def test_the_only_number_of_a_workload_sets_its_size(tmp_path):
    """Where no parameter has the size's name, the only number is left out of the sweep's name."""
    lines = []
    for params in (10, 20, 40):
        workload = f"step[kind=fused,params={params}]"
        named = {"workload": workload, "cell": f"boxing/slow-copy@{workload}/toy_rack:4"}
        lines.append(cell(**named, size_name="ops", size=3 * params + 1))
    ((sweep, _), found), *_ = series(tmp_path, lines).items()
    assert sweep == "step[kind=fused]/toy_rack:4"
    assert [point.size for point in found.points] == [31, 61, 121]


def test_sizes_that_grow_with_the_gpus_are_one_sweep(tmp_path):
    """Their size is the square root of both multiplied."""
    lines = []
    for doublings in range(5):
        boxes, gpus = 10 * 2**doublings, 4 * 2**doublings
        line = cell(boxes=boxes, gpus=gpus, seconds=1.5 * boxes)
        lines.append(line | {"cell": f"{line['cell'].rpartition(':')[0]}:{gpus}"})
    (found,) = series(tmp_path, lines).values()
    assert (found.sweep, found.size_name) == ("crates[seed=1]/toy_rack", "sqrt(boxes * GPUs)")
    assert [p.size for p in found.points] == [math.sqrt(40) * 2**n for n in range(5)]
    assert found.fit.exponent == pytest.approx(1.0)
