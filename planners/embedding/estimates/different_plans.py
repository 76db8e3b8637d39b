"""Makes different plans of one problem, from the best known plan to bad plans."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from harness.contract import InfeasibleDecision, NotApplicable, ShardbenchError
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.decision import Plan, fingerprint, torchrec_quiet, validate
from planners.embedding.drop_in.compiled_search import placed
from planners.embedding.family import FAMILY
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.same_plan.partition import Partition, PartitionRules
from planners.embedding.search.outcome import Found
from planners.embedding.search.space import Devices, Ints, SearchSpace

# For each kind of plan, the fastest variant that makes it.
_VARIANTS = ("certified", "calibrated", "compiled", "dp-compiled", "dp-compiled-2d")
_TRIES_PER_PLAN = 20
_RANDOM = "random"
_MOST_NOISE = 3.0  # largest standard deviation of a cost factor's logarithm


@torchrec_quiet()
def different_plans(problem: EmbeddingProblem, number: int, seed: int) -> list[tuple[str, Plan]]:
    """Return up to `number` different plans, each with the name of its variant or method."""

    found: dict[str, tuple[str, Plan]] = {}
    for name, plan in _plans(problem, number, seed):
        if name.startswith(_RANDOM) and len(found) >= number:
            break
        try:
            validate(problem, plan)
        except InfeasibleDecision:
            continue
        key = fingerprint(plan)
        if key not in found and len(found) < number:
            found[key] = name, plan
        elif key in found and not name.startswith(_RANDOM):
            found[key] = f"{found[key][0]}, {name}", plan
    return list(found.values())


def _plans(problem: EmbeddingProblem, number: int, seed: int) -> Iterator[tuple[str, Plan]]:
    for name in _VARIANTS:
        plan = _of_variant(problem, name)
        if plan is not None:
            yield name, plan
    space, devices = arrays(problem)
    rng = np.random.default_rng(seed)
    base = next(proofs(candidates(space, devices))).relaxed
    if (base < 0).any():  # the relaxation leaves a table without an option
        base = _any_options(space, rng)
    elif plan := _placed(space, devices, base):
        yield "relaxed, rounded", plan
    # Plans that no planner makes, from hardly changed to all random, so that ranks differ widely.
    for count in range(_TRIES_PER_PLAN * number):
        disorder = (count % number + 0.5) / number
        changed = rng.random(space.tables) < disorder
        options = np.where(changed, _any_options(space, rng), base)
        noise = np.exp(rng.normal(0, _MOST_NOISE * disorder, len(space.total)))
        noisy = replace(space, perf=space.perf * noise[:, None], total=space.total * noise)
        if plan := _placed(noisy, devices, options):
            yield f"{_RANDOM} {count + 1}", plan


def _of_variant(problem: EmbeddingProblem, name: str) -> Plan | None:
    variant = FAMILY.variants.get(name)
    if variant is None or variant.missing():
        return None
    try:
        plan = variant.prepared(problem).run()
    except (NotApplicable, ShardbenchError):
        return None
    return plan if isinstance(plan, Plan) else None


def _any_options(space: SearchSpace, rng: np.random.Generator) -> Ints:
    """Return the index of a random option for each table, shape (T,)."""
    tables = range(space.tables)
    return np.array([rng.choice(np.flatnonzero(space.table == table)) for table in tables])


def _placed(space: SearchSpace, devices: Devices, options: Ints) -> Plan | None:
    """Place options as TorchRec's partitioner does, slowest first; return None if it fails."""
    partition = Partition(space, devices, PartitionRules(by_perf=True))
    partition.place(options[np.newaxis])
    if partition.best is None:
        return None
    found = Found(partition.best, partition.best_ranks, partition.best_rating, 1, 1)
    return Plan(tuple(placed(space, found)))
