"""Measures plans of embedding tables, and calibrates the machine that runs them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property

import numpy as np
from torchrec.distributed.planner.types import Shard
from torchrec.distributed.types import ShardingType

from harness.contract import (
    BenchOptions,
    Candidate,
    CandidateSet,
    Design,
    InfeasibleDecision,
    MemorySet,
    NotApplicable,
    RankMemory,
    RankWork,
    ShardbenchError,
    TimedWork,
    UsageError,
    one_line,
)
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.decision import Plan, fingerprint, torchrec_quiet, validate
from planners.embedding.estimates.calibration import REFERENCE_MS, Calibration
from planners.embedding.estimates.estimator import torchrec_peaks
from planners.embedding.estimates.memory import (
    OF_RANK,
    OPTIMIZERS,
    PEAK,
    derived_terms,
)
from planners.embedding.estimates.shard_work import (
    CACHING,
    LookupDistribution,
    ShardWork,
    shards_by_rank,
    work_key,
)
from planners.embedding.family import FAMILY
from planners.embedding.measuring.coefficient_fit import REFERENCE, design, fit_machine
from planners.embedding.measuring.kernels import FUSED, Device, RankKernels, rows_that_fit
from planners.embedding.measuring.rank import in_order, measure_rank, rank_jobs
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.same_plan.proposals import PartitionRules
from planners.embedding.same_plan.search import Partition
from planners.embedding.search.outcome import Found, placed
from planners.embedding.search.space import Devices, Ints, SearchSpace

_KERNELS = {"cpu": (FUSED,), "cuda": (FUSED, "fused_uvm", CACHING)}

# For each kind of plan, the fastest variant that makes it.
_VARIANTS = ("certified", "compiled", "dp-compiled", "dp-compiled-2d")
_TRIES_PER_PLAN = 20
_RANDOM = "random"
_MOST_NOISE = 3.0  # largest standard deviation of a cost factor's logarithm


class EmbeddingWorkbench:
    """Implements `harness.contract.estimates.Workbench` for embedding plans."""

    def __init__(self, options: BenchOptions) -> None:
        self._device = Device(options.device)
        self._distribution = LookupDistribution.named(options.inputs)
        self._seed = options.seed
        self._gib = options.memory_gib or self._device.default_gib
        self.device = self._device.description
        self.is_asynchronous = self._device.kind == "cuda"
        others = Device(options.device)  # the reference has tables of its own
        self.reference = TimedWork("reference", lambda: self._kernels([REFERENCE], others).whole())

    def _kernels(self, shards: Sequence[ShardWork], device: Device | None = None) -> RankKernels:
        try:
            return RankKernels(shards, device or self._device, self._distribution, self._seed)
        except (RuntimeError, AssertionError) as error:  # out of memory, among others
            raise UsageError(f"A rank does not run on {self.device}: {one_line(error)}") from error

    @cached_property
    def _kernels_that_run(self) -> tuple[str, ...]:
        """The names of the kernels that run on this device; raises UsageError if none does.

        A machine may lack managed memory, or its GPU may be too old or too new for fbgemm.
        """
        usable, fault = [], ""
        for kernel in _KERNELS[self._device.kind]:
            cached = 0.2 if kernel == CACHING else 0.0
            shard = ShardWork(
                kernel, ShardingType.TABLE_WISE.value, 9999, 64, (9.0,), 99, cached=cached
            )
            try:
                self._kernels([shard]).both()
                usable.append(kernel)
            except (UsageError, RuntimeError, AssertionError) as error:
                fault = fault or f"{kernel}: {one_line(error)}"
        if not usable:
            raise UsageError(f"No kernel of fbgemm runs on {self.device}: {fault}.")
        return tuple(usable)

    def candidates(self, problem: EmbeddingProblem, number: int) -> CandidateSet:
        """Return up to `number` different plans to measure, with shards cut to fit the device."""
        problem, plans, notes = self._plans(problem, number, self._kernels_that_run)
        ranks = [shards_by_rank(plan.options, problem.topology) for _, plan in plans]
        works = [[shard for _, shard, _ in rank] for of_plan in ranks for rank in of_plan]
        most = rows_that_fit(works, self._gib)
        self._device.make_room([shard.cut_to(most) for shard in rank] for rank in works)
        if cut := sum(table.rows > most for table in problem.tables):
            notes.append(
                f"{cut} of {len(problem.tables)} tables are measured with shards of "
                f"{most:,} rows at most, so that a rank fits into {self._gib:g} GiB; the "
                "estimates are for those rows."
            )
        values = problem.machine.values if problem.machine else {}
        calibration = Calibration(values)
        if not all(calibration.covers(shard.kernel) for rank in works for shard in rank):
            calibration = Calibration({})
        decisions = [
            Candidate(
                name,
                fingerprint(plan),
                [self._rank_work(rank, most, calibration) for rank in of_plan],
            )
            for (name, plan), of_plan in zip(plans, ranks, strict=True)
        ]
        return CandidateSet(decisions, notes, values.get(REFERENCE_MS))

    def _plans(
        self, problem: EmbeddingProblem, number: int, kernels: tuple[str, ...]
    ) -> tuple[EmbeddingProblem, list[tuple[str, Plan]], list[str]]:
        """Return the problem with these kernels only, its different plans, and notes."""
        notes = []
        on_cpu = self._device.kind == "cpu"
        if not problem.kernels.issubset(kernels):
            problem = with_kernels(problem, kernels)
            why = ": cached and managed tables are measured with --device cuda" if on_cpu else ""
            named = "', '".join(kernels)
            notes.append(f"Plans keep to kernel '{named}'{why}.")
        plans = different_plans(problem, number, self._seed)
        if not plans:
            raise UsageError(
                f"No plan of this problem uses kernel '{FUSED}' alone, the only one of a CPU; "
                "measure a smaller workload, or more GPUs."
                if on_cpu
                else "No plan of this problem was found."
            )
        if len(plans) < number:
            notes.append(f"Only {len(plans)} different plans were found, not {number}.")
        return problem, plans, notes

    def memory(self, problem: EmbeddingProblem, number: int) -> MemorySet:
        """Return up to `number` different plans, with each optimizer that the device has.

        The estimate knows the memory of kernel `fused` only.
        """
        problem, plans, notes = self._plans(problem, number, (FUSED,))
        kind = self._device.kind
        if kind == "cpu":
            notes.append(
                "Not measured on a CPU: Adam, which fbgemm's kernels lack there, and ranks with a "
                "shard of no rows, on which they fail."
            )
        ranks = [*memory_candidates(problem, plans, kind, self._seed)]
        return MemorySet(ranks, notes, self._gib, PEAK)

    def _rank_work(
        self,
        rank: Sequence[tuple[str, ShardWork, Shard]],
        most: int,
        calibration: Calibration,
    ) -> RankWork:
        """Return a rank's work and its estimates, with shards cut to at most `most` rows."""
        shards = [shard.cut_to(most) for _, shard, _ in rank]
        perfs = [shard.perf for _, _, shard in rank]
        estimated = {"torchrec": sum(perf.fwd_compute + perf.bwd_compute for perf in perfs)}
        if calibration.values:
            estimated["calibrated"] = calibration.rank_ms(shards)
        return RankWork(
            TimedWork(work_key(shards), lambda: self._kernels(shards).whole()),
            estimated,
            sum(perf.fwd_comms + perf.bwd_comms for perf in perfs),
            _facts(shards),
            [{"table": name, **asdict(s)} for (name, *_), s in zip(rank, shards, strict=True)],
        )

    def design(self, share: float) -> Design:
        """Return the design of a calibration for the device's kernels; `share` scales its size."""
        points = [
            point
            for kernel in self._kernels_that_run
            for point in design(kernel, self._seed, share, self._gib)
        ]
        self._device.make_room(point.shards for point in points)

        def work(shards: Sequence[ShardWork]) -> TimedWork:
            return TimedWork(work_key(shards), lambda: self._kernels(shards).passes())

        return Design(
            [work(point.shards) for point in points],
            lambda times, reference_ms: fit_machine(
                points, times, self._distribution, reference_ms
            ),
        )


def memory_candidates(
    problem: EmbeddingProblem, plans: Sequence[tuple[str, Plan]], device: str, seed: int
) -> Iterator[RankMemory]:
    """Yield the ranks of each plan with the most and the least memory, with each optimizer.

    Raises NotApplicable unless all tables are pooled. On a CPU, ranks with an empty shard are left
    out, because fbgemm's backward pass fails on these at random.
    """
    if other := next((table for table in problem.tables if table.lookup != "pooled"), None):
        raise NotApplicable(
            f"Memory is measured for pooled tables; {other.name} is {other.lookup}."
        )
    if problem.paths:
        raise NotApplicable("Memory is measured for tables, not for the model of a captured file.")
    # fbgemm has no Adam on a CPU.
    optimizers = [name for name in OPTIMIZERS if device == "cuda" or name != "adam"]
    for name, plan in plans:
        options = in_order(problem, plan)
        for optimizer in optimizers:
            jobs = rank_jobs(problem, plan, optimizer, device, seed)
            derived = derived_terms(options, problem.topology, optimizer)
            peaks = torchrec_peaks(
                options, problem.topology, optimizer, problem.constraints, problem.sharders
            )
            by_peak = sorted(jobs, key=lambda rank: derived[rank][OF_RANK][PEAK])
            for rank in sorted({*by_peak[:1], *by_peak[-1:]}):
                torchrecs = {OF_RANK: {PEAK: peaks[rank]}}
                estimated = {"torchrec": torchrecs, "calibrated": derived[rank]}
                yield RankMemory(name, optimizer, rank, measure_rank, jobs[rank], estimated)


def with_kernels(problem: EmbeddingProblem, kernels: Sequence[str]) -> EmbeddingProblem:
    """Return the problem, restricted to those of its kernels, or to `fused` if it has none."""
    kept = [kernel for kernel in kernels if kernel in problem.kernels] or [FUSED]
    constraints = {
        name: replace(constraint, compute_kernels=kept)
        for name, constraint in problem.constraints.items()
    }
    return replace(problem, constraints=constraints, kernels=frozenset(kept), known={})


def _facts(shards: Sequence[ShardWork]) -> dict[str, str]:
    """Return, for each property such as the kernel, the value with the most looked-up bytes."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for shard in shards:
        pooling = sum(shard.lookups) / len(shard.lookups) / (shard.share or 1.0)
        facts = {
            "kernel": shard.kernel,
            "sharding type": shard.sharding_type,
            "dimension": str(shard.columns),
            "pooling factor": f"{pooling:g}",
        }
        for fact, value in facts.items():
            sums[fact][value] += shard.indices * shard.columns
    return {fact: max(by_value, key=lambda v: by_value[v]) for fact, by_value in sums.items()}


@torchrec_quiet()
def different_plans(problem: EmbeddingProblem, number: int, seed: int) -> list[tuple[str, Plan]]:
    """Return up to `number` different plans, each with the name of its variant or method.

    They range from the best known plan to bad plans.
    """
    different: dict[str, tuple[str, Plan]] = {}
    for name, plan in _made_plans(problem, number, seed):
        is_random = name.startswith(_RANDOM)
        if is_random and len(different) >= number:
            break
        try:
            validate(problem, plan)
        except InfeasibleDecision:
            continue
        key = fingerprint(plan)
        if key in different and not is_random:
            different[key] = f"{different[key][0]}, {name}", plan
        elif key not in different and len(different) < number:
            different[key] = name, plan
    return list(different.values())


def _made_plans(problem: EmbeddingProblem, number: int, seed: int) -> Iterator[tuple[str, Plan]]:
    # 1. The plans of variants, by TorchRec's formula and by the machine's estimate.
    judged, problem = problem, replace(problem, machine=None, known={})
    variants = [(name, name, problem) for name in _VARIANTS]
    if judged.machine is not None:
        variants.insert(0, (judged.machine.name, "certified", judged))
    for title, name, by in variants:
        variant = FAMILY.variants[name]
        if variant.missing():
            continue
        try:
            made = variant.prepared(by).run()
        except ShardbenchError:  # the variant does not apply, or finds no plan
            continue
        assert isinstance(made, Plan)
        yield title, Plan(tuple(by.by_torchrec(made.options)))
    # 2. The relaxed plan of the bound, rounded.
    space, devices = arrays(problem)
    relaxed = next(proofs(candidates(space, devices))).relaxed
    if (relaxed < 0).any():  # no plan exists
        return
    if plan := _placed(space, devices, relaxed):
        yield "relaxed, rounded", plan
    # 3. Plans that no planner makes, from hardly changed to all random, so that ranks differ.
    rng = np.random.default_rng(seed)
    for count in range(_TRIES_PER_PLAN * number):
        disorder = (count % number + 0.5) / number
        changed = rng.random(space.tables) < disorder
        drawn = [rng.choice(np.flatnonzero(space.table == t)) for t in range(space.tables)]
        noise = np.exp(rng.normal(0, _MOST_NOISE * disorder, len(space.total)))
        noisy = replace(space, perf=space.perf * noise[:, None], total=space.total * noise)
        if plan := _placed(noisy, devices, np.where(changed, drawn, relaxed)):
            yield f"{_RANDOM} {count + 1}", plan


def _placed(space: SearchSpace, devices: Devices, options: Ints) -> Plan | None:
    """Place options as TorchRec's partitioner does, slowest first; return None if it fails."""
    partition = Partition(space, devices, PartitionRules(by_perf=True))
    partition.place(options[np.newaxis])
    if partition.best is None:
        return None
    best = Found(partition.best, partition.best_ranks, partition.best_rating, 1, 1)
    return Plan(tuple(placed(space, best)))
