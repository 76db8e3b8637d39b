"""Different plans of one problem, from the best that is known to bad ones."""

import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from harness.contract import InfeasibleDecision, NotApplicable, ShardbenchError
from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.drop_in.compiled_search import placed
from planners.embedding.family import FAMILY
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.search.outcome import Found
from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace

# Those that decide on their own, by the quickest variant that decides so.
_VARIANTS = ("certified", "calibrated", "compiled", "dp-compiled", "dp-compiled-2d")
_TRIES_PER_PLAN = 20
_RANDOM = "random"


def different_plans(problem: EmbeddingProblem, number: int, seed: int) -> list[tuple[str, Plan]]:
    """Return so many different plans, or as many as are found, each with its maker's name."""
    with _torchrec_quiet():
        return _different(_plans(problem, number, seed), problem, number)


@contextmanager
def _torchrec_quiet() -> Iterator[None]:
    """Leave out what TorchRec warns of, which is the same for each of many plans."""
    logger = logging.getLogger("torchrec")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _different(
    plans: Iterator[tuple[str, Plan]], problem: EmbeddingProblem, number: int
) -> list[tuple[str, Plan]]:
    found: dict[str, tuple[str, Plan]] = {}
    for name, plan in plans:
        try:
            validate(problem, plan)
        except InfeasibleDecision:
            continue
        key = fingerprint(plan)
        if key in found and not name.startswith(_RANDOM):
            found[key] = f"{found[key][0]}, {name}", found[key][1]
        elif key not in found and len(found) < number:
            found[key] = name, plan
    return list(found.values())


def _plans(problem: EmbeddingProblem, number: int, seed: int) -> Iterator[tuple[str, Plan]]:
    for name in _VARIANTS:
        plan = _of_variant(problem, name)
        if plan is not None:
            yield name, plan
    space, devices = arrays(problem)
    rng = random.Random(seed)
    relaxed = linear_bound(candidates(space, devices)).options
    if (relaxed >= 0).all() and (plan := _place(space, devices, relaxed, 0.0, rng)):
        yield "relaxed, rounded", plan
    # What no planner makes: from hardly changed to all by chance, so that there is much to rank.
    base = relaxed if (relaxed >= 0).all() else _any_options(space, rng)
    for count in range(_TRIES_PER_PLAN * number):
        disorder = (count % number + 0.5) / number
        options = _changed(space, base, disorder, rng)
        if plan := _place(space, devices, options, disorder, rng):
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


def _any_options(space: SearchSpace, rng: random.Random) -> Ints:
    """Return a random option of each table."""
    return np.array(
        [rng.choice(np.flatnonzero(space.table == t).tolist()) for t in range(space.tables)]
    )


def _changed(space: SearchSpace, base: Ints, disorder: float, rng: random.Random) -> Ints:
    """Return options of which a part is drawn anew."""
    drawn = _any_options(space, rng)
    keep = np.array([rng.random() >= disorder for _ in base])
    return np.where(keep, base, drawn)


def _place(
    space: SearchSpace, devices: Devices, options: Ints, disorder: float, rng: random.Random
) -> Plan | None:
    """Place options, the dearest first, each where there is least, or in disorder where it fits."""
    load, left = np.zeros(devices.ranks), devices.storage.copy()
    ranks: dict[int, Ints] = {}
    for table in np.argsort(-space.largest_shard[options]).tolist():
        option = int(options[table])
        shards = space.estimates_of(option)
        chosen = _ranks(space, devices, option, load, left, disorder, rng)
        if chosen is None:
            return None
        np.add.at(load, chosen, space.total[shards])
        np.subtract.at(left, chosen, space.storage[shards])
        ranks[table] = chosen
    if (left < 0).any():
        return None
    every = np.concatenate([ranks[table] for table in range(len(options))])
    found = Found(options, every, float(load.max()), 1, 1)
    return Plan(tuple(placed(space, found)))


def _ranks(
    space: SearchSpace,
    devices: Devices,
    option: int,
    load: Floats,
    left: Ints,
    disorder: float,
    rng: random.Random,
) -> Ints | None:
    """Return the ranks of an option's shards, None where no place is known for them."""
    shards, kind = space.estimates_of(option), space.placement[option]
    needs, size = space.storage[shards], devices.host_ranks

    def best(places: Ints, cost: Floats) -> int:
        return int(
            rng.choice(places.tolist()) if rng.random() < disorder else places[cost.argmin()]
        )

    if kind == Placement.UNIFORM:
        return np.arange(devices.ranks) if len(shards) == devices.ranks else None
    if kind == Placement.DEVICE or (kind == Placement.HOST_COLUMNS and devices.hosts):
        within = np.arange(devices.ranks)
        if kind == Placement.HOST_COLUMNS:
            hosts = load[: devices.hosts * size].reshape(-1, size).sum(1)
            host = best(np.arange(devices.hosts), hosts)
            within = np.arange(host * size, (host + 1) * size)
        load, left, chosen = load.copy(), left.copy(), []
        for need, cost in zip(needs, space.total[shards], strict=True):
            fits = within[(left[within] >= need).all(1)]
            if not len(fits):
                return None
            rank = best(fits, load[fits])
            load[rank] += cost
            left[rank] -= need
            chosen.append(rank)
        return np.array(chosen)
    if kind in (Placement.HOST_ROWS, Placement.HOSTS) and devices.hosts:
        count = len(shards) // size
        if count * size != len(shards) or count > devices.hosts:
            return None
        hosts = load[: devices.hosts * size].reshape(-1, size).max(1)
        order = np.argsort(hosts)
        if rng.random() < disorder:
            order = np.array(rng.sample(order.tolist(), len(order)))
        return np.concatenate([np.arange(h * size, (h + 1) * size) for h in order[:count]])
    return None
