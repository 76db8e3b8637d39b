"""Calibration recovers the coefficients of a made-up device; plans measured by real kernels."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import built_problem
import msgspec
import numpy as np
import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Shard, ShardingOption

from harness.contract import Machine, NotApplicable, UsageError
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.estimates.calibration import LAUNCH, PASSES, START, TERMS, Calibration
from planners.embedding.estimates.machines import known_machines
from planners.embedding.estimates.shard_work import (
    LookupDistribution,
    ShardWork,
    missed_shares,
    shards_by_rank,
)
from planners.embedding.measuring.coefficient_fit import (
    HELD_OUT,
    POINTS,
    DesignPoint,
    Times,
    design,
    fit_machine,
)
from planners.embedding.measuring.workbench import (
    memory_candidates,
    with_kernels,
)
from planners.embedding.problem import EmbeddingProblem

UNIFORM = LookupDistribution()

# Milliseconds per unit of each term, in the order of the form, then of a kernel and of a pass.
TRUE = {
    "forward": (3e-6, 1e-8, 3e-8, 1.5e-7, 1e-5, 6e-6, 1e-9, 1e-7, 1e-5, *(0.0,) * 7, 0.3, 0.4),
    "backward": (
        *(6e-6, 1.5e-8, 2e-8, 2e-7, 3e-5, 2e-5, 2e-8, 9e-8, 2e-5),
        *(2e-7, 3e-7, 9e-7, 4e-8, 9e-5, 2e-7, 0.0, 0.1, 0.2),
    ),
}
DEVICE = Calibration(
    {"cache.near": 2.0**20, "cache.far": 2.0**25}
    | {
        f"fused.cached.{passed}.{term}": value
        for passed in PASSES
        for term, value in zip((*TERMS, LAUNCH, START), TRUE[passed], strict=True)
    }
)


MACHINE = Machine(
    device="made up",
    measured="2026-11-29",
    packages={},
    figures={name: (value,) * 3 for name, value in DEVICE.values.items()},
    name="made-up",
)


def times_of(points: list[DesignPoint], noise: float = 0.0) -> Times:
    """Return the made-up device's milliseconds for each point and pass, with random noise."""
    rng = np.random.default_rng(0)

    def milliseconds(point: DesignPoint, passed: str) -> float:
        kernels = len({(shard.sharding_type, shard.is_weighted) for shard in point.shards})
        starts = kernels * TRUE[passed][-2] + TRUE[passed][-1]
        return sum(DEVICE.shard_ms(shard, passed) for shard in point.shards) + starts

    return {
        point.key: {
            passed: milliseconds(point, passed) * math.exp(rng.normal(0, noise))
            for passed in PASSES
        }
        for point in points
    }


def test_calibrating_finds_the_coefficients_of_a_made_up_device():
    """Times with noise give caches, coefficients within their intervals, and small errors."""
    points = design("fused")
    machine = fit_machine(points, times_of(points, noise=0.02), UNIFORM)
    calibration = Calibration({figure.name: figure.value for figure in machine.figures})
    for size, true in zip(calibration.caches, DEVICE.caches, strict=True):
        assert 0.5 <= size / true <= 2  # of a grid of sizes
    for point in points:
        if point.purpose.startswith(HELD_OUT):
            ratio = calibration.rank_ms(point.shards) / DEVICE.rank_ms(point.shards)
            assert ratio == pytest.approx(1, abs=0.12)
    inside = [
        figure.low <= DEVICE.values[figure.name] <= figure.high
        for figure in machine.figures
        if figure.name.startswith("fused.cached")
    ]
    assert len(inside) == 34
    assert sum(inside) >= 27  # of intervals at 95 %, some of which share what they explain
    errors = {error.purpose: error.error for error in machine.errors}
    assert errors.keys() == POINTS.keys()
    assert errors[HELD_OUT] < 0.04


def test_a_cache_of_rows_keeps_what_is_looked_up_most():
    """Alone, a table misses what does not fit; beside another one, the busier table misses less."""

    def cached(rows: int, lookups: float) -> ShardWork:
        return ShardWork("fused_uvm_caching", "table_wise", rows, 32, (lookups,), 1000, cached=0.2)

    large, busy = cached(10**6, 10.0), cached(10**4, 10.0)
    assert missed_shares([large], UNIFORM) == pytest.approx([0.8])
    assert 0 < missed_shares([large], LookupDistribution.named("zipf"))[0] < 0.8
    of_large, of_busy = missed_shares([large, busy], UNIFORM)
    assert of_busy < 1e-6 < 0.8 < of_large < 0.82
    assert missed_shares([replace(large, cached=1.0), busy], UNIFORM)[0] < of_large
    assert missed_shares([replace(large, kernel="fused")], UNIFORM) == [0.0]


def test_a_kernel_with_tables_of_several_kinds_starts_as_the_most_expensive_kind():
    """In whichever order the tables are, and only once."""
    calibration = Calibration(
        {
            f"{kernel}.cached.{passed}.{LAUNCH}": milliseconds
            for kernel, milliseconds in (("fused", 0.5), ("fused_uvm_caching", 3.0))
            for passed in PASSES
        }
    )
    shards = [
        ShardWork(kernel, "table_wise", 100, 8, (1.0,), 10, cached=0.2)
        for kernel in ("fused", "fused_uvm_caching")
    ]
    assert calibration.rank_ms(shards[:1]) == 1.0
    assert calibration.rank_ms(shards) == calibration.rank_ms(shards[::-1]) == 6.0
    other = replace(shards[0], sharding_type="row_wise")
    assert calibration.rank_ms([*shards, other]) == 7.0
    assert calibration.rank_ms([]) == 0.0


def test_a_shared_table_pays_its_own_cost_for_a_distinct_row():
    """Not that of a table with one feature, whose pass is other code."""
    single = ShardWork("fused", "table_wise", 100, 8, (2.0,), 10)
    shared = replace(single, lookups=(1.0, 1.0))
    for term, paid in (("row", single), ("shared_row", shared)):
        calibration = Calibration({f"fused.cached.backward.{term}": 1.0})
        rows = {shard: calibration.shard_ms(shard, "backward") for shard in (single, shared)}
        assert [shard for shard, distinct in rows.items() if distinct] == [paid]


def test_too_few_points_are_refused():
    """One sentence names the number that a fit needs."""
    points = design("fused", share=0.1)[:5]
    with pytest.raises(UsageError, match="a fit needs 12"):
        fit_machine(points, times_of(points), UNIFORM)


@pytest.mark.parametrize("text", ["zipf:9", "zipf:x", "normal", ""])
def test_an_unknown_distribution_is_one_sentence(text: str):
    """It names the option."""
    with pytest.raises(UsageError, match="--ind"):
        LookupDistribution.named(text)


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return built_problem.problem("synthetic[tables=6,seed=3,memory=roomy]", gpus=4)


def shards_in(plan: Sequence[ShardingOption], topology) -> list[tuple[ShardWork, Shard]]:
    return [pair for rank in shards_by_rank(plan, topology) for _, *pair in rank]


def test_options_have_calibrated_times_and_only_kernels_of_the_machine(tmp_path):
    """A sequence costs more than a pooled table, since it writes a vector for each index."""
    file = tmp_path / "t.csv"
    file.write_text("rows,dim,pooling_factor,lookup\n9000,64,20,sequence\n8000,64,9,pooled\n")
    problem = replace(built_problem.problem(str(file), gpus=4), machine=MACHINE)
    options = problem.judging_enumerator().enumerate(problem.module, problem.sharders)
    assert {option.compute_kernel for option in options} == {"fused"}  # not cached
    pooled = [o for o in options if o.is_pooled and o.compute_kernel == "fused"]
    for option in pooled:
        for number, shard in enumerate(option.shards):
            shard.rank = number % 4
    assert len(pooled) > 3
    for work, shard in shards_in(pooled, problem.topology):
        assert shard.perf.fwd_compute == pytest.approx(DEVICE.shard_ms(work, "forward"))
        assert shard.perf.bwd_compute == pytest.approx(DEVICE.shard_ms(work, "backward"))
    sequence = next(o for o in options if not o.is_pooled and o.sharding_type == "table_wise")
    table = ShardWork("fused", "table_wise", 9000, 64, (20.0,), 4 * problem.batch_size)
    pooled_ms = DEVICE.shard_ms(table, "forward")
    assert sequence.shards[0].perf.fwd_compute > pooled_ms
    with pytest.raises(NotApplicable, match="table_0 is sequence"):
        list(memory_candidates(problem, [], "cpu", 0))


def test_measured_links_replace_those_of_the_topology(problem: EmbeddingProblem):
    """Communication takes longer by them, computation as long as before."""
    slow = msgspec.structs.replace(
        MACHINE, figures={**MACHINE.figures, "links.bytes_per_ms": (1e6, 1e6, 1e6)}
    )
    (fast, slower) = (
        replace(problem, machine=machine)
        .judging_enumerator()
        .enumerate(problem.module, problem.sharders)
        for machine in (MACHINE, slow)
    )
    for ours, theirs in zip(slower, fast, strict=True):
        for mine, other in zip(ours.shards, theirs.shards, strict=True):
            assert mine.perf.fwd_comms > 10 * other.perf.fwd_comms or not other.perf.fwd_comms
            assert mine.perf.fwd_compute == other.perf.fwd_compute


def test_a_table_without_a_kernel_of_the_machine_is_one_sentence(problem: EmbeddingProblem):
    """The machine has no estimate for it."""
    cached = replace(with_kernels(problem, ["fused_uvm_caching"]), machine=MACHINE)
    with pytest.raises(UsageError, match="allows none of them"):
        FAMILY.find("certified").prepared(cached).run()


def test_the_best_plan_by_a_machine_is_rated_by_it_and_by_torchrec(problem: EmbeddingProblem):
    """Both estimates agree that the other one's best plan is no better than their own."""
    fused = with_kernels(replace(problem, search_seconds=1.0), ["fused"])
    judged = replace(fused, machine=MACHINE, known={})
    by_machine, by_torchrec = (FAMILY.find("certified").prepared(p).run() for p in (judged, fused))
    validate(judged, by_machine)

    def slowest(made: Plan) -> float:
        return max(
            sum(DEVICE.shard_ms(work, passed) for _, work, _ in rank for passed in PASSES)
            for rank in shards_by_rank(made.options, fused.topology)
        )

    assert slowest(by_machine) <= slowest(by_torchrec) * 1.001
    ours, theirs = (FAMILY.work.quality(judged, plan) for plan in (by_machine, by_torchrec))
    assert ours["max_rank_ms"] <= theirs["max_rank_ms"] * 1.001
    assert ours["max_rank_ms"] >= ours["bound_ms"] > 0
    plain = FAMILY.work.quality(fused, by_torchrec)
    assert theirs["torchrec_ms"] == pytest.approx(plain["max_rank_ms"])
    assert theirs["torchrec_hbm_fraction"] == pytest.approx(plain["hbm_peak_fraction"])
    assert theirs["torchrec_ms"] <= ours["torchrec_ms"] * 1.001


def test_a_plan_that_fits_by_a_machine_fits_by_torchrec_too(problem: EmbeddingProblem):
    """No shard counts fewer bytes than torchrec's, since a job checks no memory itself."""
    judged = replace(problem, machine=MACHINE)
    for option in judged.judging_enumerator().enumerate(problem.module, problem.sharders):
        theirs = judged.by_torchrec([option])[0]
        for ours, shard in zip(option.shards, theirs.shards, strict=True):
            assert ours.storage.hbm >= shard.storage.hbm


def test_a_planner_takes_a_machine_as_one_argument(problem: EmbeddingProblem):
    """Its plan is rated by the machine, and by torchrec beside it."""

    def planner(**arguments: Any) -> Planner:
        made = Planner(
            problem.topology, constraints=problem.constraints, stats=[], debug=False, **arguments
        )
        made.plan(problem.module, problem.sharders)
        return made

    own = EmbeddingEnumerator(problem.topology, problem.batch_size, problem.constraints)
    by_machine = planner(mode="best-plan", machine=MACHINE)
    by_torchrec = planner(mode="best-plan", machine="none")
    assert planner(mode="best-plan", machine="none", enumerator=own).machine is None
    assert by_machine.machine is MACHINE
    assert by_torchrec.machine is None
    assert by_torchrec.max_rank_ms == by_torchrec.torchrec_ms <= by_machine.torchrec_ms * 1.001
    assert by_machine.max_rank_ms != by_machine.torchrec_ms
    assert by_machine.max_rank_ms >= by_machine.bound_ms > 0


def test_machines_that_shardbench_includes_can_judge_plans():
    """Each has a device and kernel `fused`, and each figure lies within its interval."""
    assert "epyc_2core" in known_machines()
    for machine in known_machines().values():
        assert machine.device
        assert Calibration(machine.values).covers("fused")
        assert all(low <= value <= high for value, low, high in machine.figures.values())


@pytest.mark.parametrize(
    ("arguments", "fault", "sentence"),
    [
        ({"machine": MACHINE}, ValueError, "needs mode 'best-plan'"),
        ({"machine": "xeno", "mode": "best-plan"}, UsageError, "Unknown machine 'xeno'"),
        ({"machine": "none.toml", "mode": "best-plan"}, UsageError, "none.toml cannot be read"),
    ],
)
def test_a_machine_that_cannot_judge_is_one_sentence(
    arguments, fault, sentence: str, problem: EmbeddingProblem
):
    """The mode is wrong, or the machine is not known."""
    with pytest.raises(fault, match=sentence):
        Planner(problem.topology, **arguments)
