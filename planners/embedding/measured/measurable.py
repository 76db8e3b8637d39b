"""Plans of embedding tables, measured on this machine, and machines calibrated for them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torchrec.distributed.planner.types import Shard

from harness.contract import (
    Bench,
    Candidate,
    CandidatesOnBench,
    Prepared,
    RankWork,
    SweepOnBench,
    TimedWork,
    UsageError,
)
from planners.embedding.calibration.coefficients import REFERENCE_MS
from planners.embedding.calibration.indices import Indices, indices_named
from planners.embedding.calibration.shards import ShardWork, shards_by_rank, work_key
from planners.embedding.calibration.terms import CACHED, TORCHREC
from planners.embedding.decision import fingerprint
from planners.embedding.measured.device import Device, rows_that_fit
from planners.embedding.measured.fitting import fit_sweep
from planners.embedding.measured.kernels import (
    CPU_KERNEL,
    prepared_passes,
    prepared_rank,
)
from planners.embedding.measured.plans import different_plans
from planners.embedding.measured.sweep import REFERENCE, design
from planners.embedding.problem import EmbeddingProblem

_CUDA_KERNELS = ("fused", "fused_uvm_caching")

RankShards = Sequence[tuple[ShardWork, Shard]]


class _Measurable:
    """How the family is measured: see `harness.contract.Measurable`."""

    facts = ("kernel", "sharding type", "dimension", "pooling factor")

    def candidates(self, problem: EmbeddingProblem, number: int, bench: Bench) -> CandidatesOnBench:
        """Return different plans of a problem, whose tables fit on the device."""
        device, indices, notes = Device(bench.device), indices_named(bench.inputs), []
        if device.kind == "cpu":
            problem, said = _on_cpu(problem)
            notes += said
        plans = different_plans(problem, number, bench.seed)
        if not plans:
            raise UsageError(
                f"No plan of this problem uses kernel '{CPU_KERNEL}' alone, which is what a CPU "
                "has; measure a smaller workload, or more GPUs."
                if device.kind == "cpu"
                else "No plan of this problem was found."
            )
        if len(plans) < number:
            notes.append(f"Only {len(plans)} different plans were found, not {number}.")
        ranks = {
            key: shards_by_rank(plan.options, problem.topology)
            for key, plan in ((fingerprint(plan), plan) for _, plan in plans)
        }
        works = [[shard for shard, _ in rank] for each in ranks.values() for rank in each]
        gib = bench.memory_gib or device.default_gib
        most = rows_that_fit(works, gib)
        device.make_room([shard.cut_to(most) for shard in rank] for rank in works)
        if cut := _cut_tables(problem, most):
            notes.append(
                f"{cut} of {len(problem.tables)} tables are measured with shards of "
                f"{most:,} rows at most, so that a rank fits into {gib:g} GiB; the "
                "estimates are for those rows."
            )
        found = [
            Candidate(
                name,
                fingerprint(plan),
                [
                    self._rank(problem, rank, most, device, indices, bench.seed)
                    for rank in ranks[fingerprint(plan)]
                ],
            )
            for name, plan in plans
        ]
        return CandidatesOnBench(
            device.described(),
            device.kind == "cuda",
            _reference(bench),
            notes,
            found,
            problem.calibration.values.get(REFERENCE_MS) if problem.calibration else None,
        )

    def _rank(
        self,
        problem: EmbeddingProblem,
        rank: RankShards,
        most: int,
        device: Device,
        indices: Indices,
        seed: int,
    ) -> RankWork:
        shards = [shard.cut_to(most) for shard, _ in rank]
        perfs = [shard.perf for _, shard in rank]
        estimated = {"torchrec": sum(p.fwd_compute + p.bwd_compute for p in perfs)}
        calibration = problem.calibration
        if calibration and all(calibration.covers(shard.kernel) for shard in shards):
            estimated["torchrec, fitted"] = calibration.rank_ms(shards, TORCHREC)
            estimated["calibrated"] = calibration.rank_ms(shards, CACHED)
        return RankWork(
            TimedWork(
                work_key(shards),
                lambda: {"both": prepared_rank(shards, device, indices, seed)},
            ),
            estimated,
            sum(p.fwd_comms + p.bwd_comms for p in perfs),
            _facts(shards),
        )

    def sweep(self, bench: Bench, share: float) -> SweepOnBench:
        """Return the sweep of the kernels that the device has."""
        device, indices = Device(bench.device), indices_named(bench.inputs)
        kernels = _CUDA_KERNELS if device.kind == "cuda" else (CPU_KERNEL,)
        gib = bench.memory_gib or device.default_gib
        points = [point for each in kernels for point in design(each, bench.seed, share, gib)]
        device.make_room(point.shards for point in points)

        def passes(shards: Sequence[ShardWork]) -> Mapping[str, Prepared[Any]]:
            return prepared_passes(shards, device, indices, bench.seed)

        works = [TimedWork(point.key, partial(passes, point.shards)) for point in points]
        return SweepOnBench(
            device.described(),
            device.kind == "cuda",
            _reference(bench),
            works=works,
            fit=lambda times, reference_ms: fit_sweep(points, times, indices, reference_ms),
        )


def _reference(bench: Bench) -> TimedWork:
    """Return the work that all else is set against, on tables of its own."""
    device, indices = Device(bench.device), indices_named(bench.inputs)
    return TimedWork(
        "reference", lambda: {"both": prepared_rank([REFERENCE], device, indices, bench.seed)}
    )


def _on_cpu(problem: EmbeddingProblem) -> tuple[EmbeddingProblem, list[str]]:
    """Return the problem with the kernel alone that fbgemm has on a CPU."""
    if problem.kernels == {CPU_KERNEL}:
        return problem, []
    constraints = {
        table.name: replace(problem.constraints[table.name], compute_kernels=[CPU_KERNEL])
        for table in problem.tables
        if table.name in problem.constraints
    }
    note = (
        f"Plans keep to kernel '{CPU_KERNEL}': cached and managed tables are measured with "
        "--device cuda."
    )
    kept = replace(problem, constraints=constraints, kernels=frozenset({CPU_KERNEL}), known={})
    return kept, [note]


def _cut_tables(problem: EmbeddingProblem, most: int) -> int:
    return sum(table.rows > most for table in problem.tables)


def _facts(shards: Sequence[ShardWork]) -> dict[str, str]:
    """Return what most bytes of a rank's lookups are of."""
    if not shards:
        return {}

    def most(values: Sequence[str]) -> str:
        sums: dict[str, float] = {}
        for value, shard in zip(values, shards, strict=True):
            sums[value] = sums.get(value, 0.0) + shard.indices * shard.columns
        return max(sums, key=lambda value: sums[value])

    return {
        "kernel": most([shard.kernel for shard in shards]),
        "sharding type": most([shard.sharding_type for shard in shards]),
        "dimension": most([str(shard.columns) for shard in shards]),
        "pooling factor": most([_pooling(shard) for shard in shards]),
    }


def _pooling(shard: ShardWork) -> str:
    whole = sum(shard.lookups) / len(shard.lookups) / (shard.share or 1.0)
    return f"{whole:g}"


MEASURABLE = _Measurable()
