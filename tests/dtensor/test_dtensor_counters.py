"""Counts of a call repeat exactly and show the savings of each step."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from small_world import EVERYWHERE, FEW_ROUNDS, checked, problem_of

from planners.dtensor.workloads import OPS

pytestmark = pytest.mark.usefixtures("few_rounds")

HOST = "dgx_a100_80gb:8"
ORDINARY = ("mm", "addmm", "mul", "relu", "t", "add-scalar")
DISPATCHES = ("before", "after", "no-pytree", "upstream", "interned")
PASSES = dict.fromkeys(DISPATCHES, 0) | {"before": 11 * FEW_ROUNDS, "after": 6 * FEW_ROUNDS}
SEARCHES = ("upstream", "dijkstra", "exact-miss")


@pytest.fixture(scope="module")
def counted():
    """Return the counters of a variant on a workload."""
    known: dict[tuple[str, str], Mapping[str, int]] = {}

    def counted(variant: str, workload: str) -> Mapping[str, int]:
        if (variant, workload) not in known:
            problem = problem_of(f"{workload}/{HOST}")
            program = replace(problem.program, counts_kept=False)  # which takes fifty steps more
            known[variant, workload] = checked(variant, replace(problem, program=program)).counters
        return known[variant, workload]

    return counted


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("variant", EVERYWHERE)
def test_every_op_is_looked_up_once_and_is_a_hit_or_a_miss(variant, op, counted):
    """Warm calls are hits, but for views before #107305; kept decisions have a size."""
    found = counted(variant, f"ops[op={op}]")
    assert found["lookups"] == found["hits"] + found["misses"] == FEW_ROUNDS
    is_forgotten = variant == "uncached" or (variant == "before" and op.startswith("view"))
    assert found["misses"] == (FEW_ROUNDS if is_forgotten else 0)
    assert found["cache_entries"] >= 1
    assert found["cache_bytes"] > 500 * found["cache_entries"]
    if variant in ("interned", "shape-class"):
        assert found["specs_built"] == found["strategies_expanded"] == found["pytree_passes"] == 0


@pytest.mark.parametrize(
    ("workload", "counter", "expected"),
    [
        *((f"ops[op={op}]", "pytree_passes", PASSES) for op in ORDINARY),
        ("ops[op=view]", "pytree_passes", {"after": 6 * FEW_ROUNDS}),
        ("ops[op=view-sharded]", "pytree_passes", {"after": 7 * FEW_ROUNDS}),  # for its own size
        # Two calls warm, one is counted: the oldest way keeps a view again in each call.
        ("ops[op=view]", "cache_entries", {"before": 3 * FEW_ROUNDS, "after": 1}),
        # Torch builds a spec for the number of every op.
        ("ops[op=add-scalar]", "specs_built", {"upstream": FEW_ROUNDS, "interned": 0}),
        ("mlp", "misses", {"before": 2, **dict.fromkeys((*DISPATCHES[1:], "shape-class"), 0)}),
        ("mlp", "lookups", dict.fromkeys((*DISPATCHES, "shape-class"), 24)),
        # The two products are of equal shapes and placements, so that the second one is known.
        ("dynamic", "misses", dict.fromkeys((*DISPATCHES, "exact-miss"), 2) | {"shape-class": 0}),
        ("dynamic", "strategies_expanded", {"shape-class": 0}),
        ("dynamic", "specs_built", {"shape-class": 0}),
        ("miss[dims=2]", "misses", dict.fromkeys(SEARCHES, len(OPS))),
        (
            "miss[dims=2]",
            "strategies_expanded",
            dict.fromkeys(SEARCHES[1:], len(OPS)),
        ),
    ],
)
def test_counters_show_what_each_variant_saves(workload, counter, expected, counted):
    """Views, numbers, new sizes and misses take the work that the variants promise."""
    assert {variant: counted(variant, workload)[counter] for variant in expected} == expected


def test_torch_puts_all_strategies_of_a_miss_together(counted):
    """On two mesh dimensions a miss expands more than twenty strategies an op."""
    assert counted("upstream", "miss[dims=2]")["strategies_expanded"] > 20 * len(OPS)


@pytest.mark.parametrize("variant", EVERYWHERE)
def test_counters_repeat_exactly(variant):
    """Two checks of a variant count the same."""
    problem = problem_of(f"ops[op=mm+view-sharded+add-scalar]/{HOST}")
    first, second = (dict(checked(variant, problem).counters) for _ in range(2))
    for counters in (first, second):
        del counters["cache_bytes"]  # hashes are in it, which take 28 or 32 bytes
    assert first == second
