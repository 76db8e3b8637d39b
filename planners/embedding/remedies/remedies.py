"""Finds the remedies for a problem without a plan, each with a plan and a proof.

The search for the best plan minimises the milliseconds of the slowest rank within each rank's
memory, and proves a bound. With bytes in the place of milliseconds, it minimises the memory of the
fullest rank. With all milliseconds zero, it ends at the first plan that fits. So its searches and
its proofs serve here too.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import nn
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.types import ModuleSharder

from harness.contract import Remedies, Remedy, ShardbenchError, one_line
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.best_plan.search import search_in_order
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally, canonical_order
from planners.embedding.decision import Plan, torchrec_quiet
from planners.embedding.explain.placed_plan import described
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import (
    changed,
    least_of,
    least_total,
    memory_left,
    on_ranks,
    share_leaving,
    with_memory,
)
from planners.embedding.search import warm_up
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.outcome import Deadline, Found, NotFound, placed
from planners.embedding.search.space import (
    Devices,
    Floats,
    Ints,
    SearchSpace,
    devices_of,
    load_of,
    search_space,
)

if TYPE_CHECKING:
    from planners.embedding.drop_in.planner import Planner

GIB = 2**30
KINDS = ("HBM", "DDR")
HBM, DDR = 0, 1  # columns of storage

Results = Iterator[Remedy[EmbeddingProblem, Plan] | str]
"""Remedies, and sentences on remedies that were not found."""

Amounts = tuple[str, str, float, float, float]
"""How much changes: a Remedy's name, unit, present, sufficient and proven value."""

# What users can change in their script comes before more machines and other machines. Of equally
# small changes, the faster plan comes first.
_ORDER = ("nothing", "HBM reserved", "batch size", "GPUs", "DDR per host", "HBM per GPU")

_SHARE_OF_TEST = 0.25  # of a step's remaining time, for one batch size or number of hosts
_NEAR_ENOUGH = 1.01  # between a batch size that is enough and one that is not
_MOST_HOSTS = 8  # times the present hosts
_MOST_LONELY = 5  # tables named that fit nowhere on their own


def remedies(problem: EmbeddingProblem, seconds: float) -> Remedies[EmbeddingProblem, Plan]:
    """Return the remedies for a problem without a plan, first what users can change themselves.

    Each remedy is enough alone. After `seconds` the search ends with the remedies found by then;
    only compiling the search, once for an installation, and enumerating the options of a large
    problem may take longer. A step that fails, or for which no time is left, is named.
    """
    warm_up.ready(warm_up.BEST_PLAN)
    deadline = Deadline(seconds)
    enough: list[Remedy[EmbeddingProblem, Plan]] = []
    findings: list[str] = []
    with torchrec_quiet():
        search = _Search(problem, deadline)
        if not can_be_placed_locally(search.now.space, search.now.devices):
            return Remedies((), ("Remedies are unknown where tables depend on each other.",), ())
        steps = search.steps
        for number, (name, step) in enumerate(steps.items()):
            try:
                for result in step(deadline.after(1 / (len(steps) - number))):
                    if isinstance(result, str):
                        findings.append(result)
                    else:
                        enough.append(result)
            except ShardbenchError as error:
                findings.append(f"{name}: not tried to the end, since {error}.")
            except Exception as error:  # torchrec and users' own classes raise errors of many types
                findings.append(f"{name}: not tried to the end, since {one_line(error)}")
            if any(not remedy.changes for remedy in enough):
                break  # nothing has to change
        causes = tuple(search.causes())
    enough.sort(key=lambda remedy: (_ORDER.index(remedy.name), remedy.rating))
    return Remedies(causes, tuple(findings), tuple(enough))


def remedies_note(
    planner: "Planner", module: nn.Module, sharders: list[ModuleSharder[nn.Module]], seconds: float
) -> str:
    """Return sentences on what would be enough for a planner's plan, found within `seconds`.

    The planner must have torchrec's estimates, since the changed problems are estimated again.
    """
    try:
        problem = EmbeddingProblem(
            tables=(),
            topology=planner._topology,
            module=module,
            constraints=planner._constraints or {},
            sharders=sharders,
            usable_hbm=(),
            usable_ddr=(),
            memory="",
            assigned="",
            batch_size=planner._batch_size,
            reservation=lambda: copy.copy(planner._storage_reservation),
        )
        outcome = remedies(changed(problem), seconds)
        changes = (remedy.sentence for remedy in outcome.remedies)
        sentences = [*outcome.causes, *changes, *outcome.findings]
    except Exception as error:  # the caller raises torchrec's error, which matters more
        sentences = [f"Remedies were not searched, {one_line(error)}"]
    return "\n".join(f"- {sentence}" for sentence in sentences)


@dataclass(frozen=True, slots=True)
class Flat:
    """A problem with its options as arrays, in canonical order."""

    problem: EmbeddingProblem
    space: SearchSpace
    devices: Devices

    @classmethod
    def of(cls, problem: EmbeddingProblem) -> "Flat":
        """Enumerate the options of a problem; raises what torchrec raises."""
        enumerator = problem.enumerator(DistinctShardEnumerator)
        space = search_space(enumerator.enumerate(problem.module, problem.sharders))
        space = with_options(space, canonical_order(space))
        return cls(problem, space, devices_of(memory_left(problem)))

    def with_memory(self, kind: int, capacity: int) -> "Flat":
        """Return the problem with this many usable bytes of a kind of memory on each rank."""
        storage = self.devices.storage.copy()
        storage[:, kind] = capacity
        return replace(self, devices=replace(self.devices, storage=storage))

    def in_hbm(self) -> "Flat | None":
        """Return the problem with the options without host memory; None if a table has none."""
        space = self.space
        options = np.flatnonzero(space.option_storage[:, DDR] == 0)
        if len(np.unique(space.table[options])) < space.tables:
            return None
        return replace(self, space=with_options(space, options))

    def any_plan(self, deadline: Deadline) -> Found | NotFound:
        """Search for a plan that fits, whatever its milliseconds, or for a proof that none does."""
        space = _rated(self.space, np.zeros(len(self.space.total)))
        memory = next(proofs(candidates(space, self.devices), deadline=deadline))
        if math.isinf(memory.milliseconds):
            return NotFound(None, None, 0, math.inf)
        return search_in_order(space, self.devices, deadline)

    def least_memory(self, kind: int, deadline: Deadline) -> Found | NotFound:
        """Search for the plan with the least memory of a kind on its fullest rank.

        The rating and the bound are in GiB. Other kinds of memory are limited as usual.
        """
        space = _rated(self.space, self.space.storage[:, kind] / GIB)
        for storage in (space.storage, space.option_storage):
            storage[:, kind] = 0
        return search_in_order(space, self.with_memory(kind, 0).devices, deadline)

    def remedy(
        self, known: Found, deadline: Deadline, amounts: Amounts, *changes: str
    ) -> Remedy[EmbeddingProblem, Plan]:
        """Return the changes that make this problem, with the best plan from a known one.

        The plan is at least as fast as `known`, which fits.
        """
        load = load_of(self.space, known.options, known.ranks, self.devices.ranks)
        known = replace(known, rating=load.rating)
        outcome = search_in_order(self.space, self.devices, deadline, known=known)
        plan = outcome if isinstance(outcome, Found) else known
        return Remedy(
            *amounts,
            changes=changes,
            rating=plan.rating,
            problem=replace(self.problem, changes=changes),
            decision=Plan(tuple(placed(self.space, plan))),
            sentence=_sentence(amounts, changes, plan.rating),
        )

    def fitting_nowhere(self) -> Iterator[str]:
        """Yield sentences on the tables without an option that fits on empty devices."""
        space, capacity = self.space, self.devices.storage.max(axis=0)
        part = (space.storage / np.maximum(capacity, 1)).max(axis=1)
        largest = np.maximum.reduceat(part[space.estimate], space.first_shard[:-1])
        lonely = candidates(space, self.devices).without_options.tolist()
        for table in lonely[:_MOST_LONELY]:
            options = np.flatnonzero(space.table == table)
            best = int(options[largest[options].argmin()])
            shards = space.estimates_of(best)
            needed = space.storage[shards[part[shards].argmax()]].tolist()
            needs = " and ".join(
                f"{amount / GIB:.4g} GiB of {kind} (of {max(whole, 0) / GIB:.4g})"
                for kind, amount, whole in zip(KINDS, needed, capacity.tolist(), strict=False)
                if amount
            )
            yield (
                f"Table {space.options[best].name} fits nowhere on its own: a shard needs {needs}, "
                f"with its best option, {described(space, best)}."
            )
        if len(lonely) > _MOST_LONELY:
            yield f"{len(lonely) - _MOST_LONELY} more tables fit nowhere on their own."


def with_options(space: SearchSpace, options: Ints) -> SearchSpace:
    """Return the search space of these options, given by number, in their order."""
    return search_space([space.options[number] for number in options.tolist()])


def _rated(space: SearchSpace, total: Floats) -> SearchSpace:
    """Return a copy of the search space with `total` as each estimate's milliseconds."""
    of_shards, first = total[space.estimate], space.first_shard[:-1]
    return replace(
        space,
        storage=space.storage.copy(),
        option_storage=space.option_storage.copy(),
        perf=np.column_stack([total, np.zeros((len(total), space.perf.shape[1] - 1))]),
        total=total,
        option_perf=np.add.reduceat(of_shards, first),
        largest_shard=np.maximum.reduceat(of_shards, first),
    )


class _Search:
    """The steps of the search; each yields remedies, or sentences on remedies not found."""

    def __init__(self, problem: EmbeddingProblem, deadline: Deadline) -> None:
        self._present = {kind: least_of(problem.topology, kind.lower()) for kind in KINDS}
        before = deadline.left
        self.now = Flat.of(problem)
        self._seconds_to_enumerate = before - deadline.left
        self._usable = self.now.devices.storage.min(axis=0).tolist()
        # The reservation needs more than all HBM, so it is proven that no plan fits.
        self._refused = self._infeasible = self._usable[HBM] < 0
        # HBM is first, since its proof helps the other steps.
        self.steps: dict[str, Callable[[Deadline], Results]] = {
            "More HBM or a smaller reservation": self._hbm,
            "A smaller batch": self._batch,
        }
        if not self._refused:
            self.steps |= {"More GPUs": self._hosts, "More host memory": self._ddr}

    def causes(self) -> Iterator[str]:
        """Yield a sentence if no HBM is left, else one for each table that fits nowhere."""
        if self._refused:
            yield (
                "The storage reservation needs more than all HBM, so neither more GPUs nor more "
                "host memory is enough."
            )
        elif self.now.devices.storage[:, HBM].max() <= 0 < self._present["HBM"]:
            yield "The storage reservation leaves no HBM."
        else:
            yield from self.now.fitting_nowhere()

    def _check_can_enumerate(self, deadline: Deadline, times: float = 1.0) -> None:
        """Raise ShardbenchError if the options cannot be enumerated again, or not in time."""
        if self.now.problem.options is not None and self.now.problem.options.fed:
            raise ShardbenchError("the captured estimates are not those of the installed torchrec")
        if deadline.left < times * self._seconds_to_enumerate:
            raise ShardbenchError("there is too little time")

    def _least_memory(self, kind: int, deadline: Deadline) -> Found | NotFound:
        """Search for the plan with the least memory of a kind; note a proof that no plan fits."""
        least = self.now.least_memory(kind, deadline)
        self._infeasible |= least.bound * GIB > int(self.now.devices.storage[:, kind].max())
        return least

    def _hbm(self, deadline: Deadline) -> Results:
        """A smaller reservation, and more HBM on each GPU."""
        least = self._least_memory(HBM, deadline.after(0.5))
        if not isinstance(least, Found):
            yield _not_enough("More HBM", least.bound, deadline)
            return
        usable, _ = _bytes(least)
        if usable <= self._usable[HBM]:
            yield self.now.remedy(least, deadline, ("nothing", "", 0, 0, 0))
            return
        if usable > self._present["HBM"]:
            yield "A smaller reservation is not enough: the tables need more than all HBM."
        else:
            yield from self._reservation(least, deadline)
        yield from self._more_memory(HBM, least, deadline, "GPU", 1)

    def _reservation(self, least: Found, deadline: Deadline) -> Results:
        """A smaller reservation, and one for plans in HBM alone.

        The plan with the least HBM has tables in host memory, if it may, and that is slow.
        """
        plans: list[tuple[Flat, Found | NotFound, str]] = [(self.now, least, "")]
        if in_hbm := self.now.in_hbm():
            fast = in_hbm.least_memory(HBM, deadline.after(0.4))
            plans.append((in_hbm, fast, ", with all tables in HBM"))
        present, now = self._present["HBM"], self._usable[HBM]
        reserved = "more than all" if self._refused else f"{100 * (1 - now / present):.4g} %"
        usable = 0
        for flat, plan, how in plans:
            if not isinstance(plan, Found) or not usable < _bytes(plan)[0] <= present:
                continue
            usable, proven = _bytes(plan)
            share = share_leaving(present, usable)
            most = 100 * (1 - max(proven, now) / present)
            reservation = partial(FixedPercentageStorageReservation, share)
            less = changed(self.now.problem, reservation=reservation)
            yield replace(flat.with_memory(HBM, usable), problem=less).remedy(
                plan,
                deadline.after(0.4),
                ("HBM reserved", "%", 100 * (1 - now / present), 100 * share, most),
                f"Reserve at most {100 * share:.4g} % of each GPU's HBM in place of "
                f"{reserved}{how}.",
            )

    def _more_memory(
        self, kind: int, plan: Found, deadline: Deadline, holder: str, gpus: int
    ) -> Results:
        """More memory of a kind on each holder, which serves a number of GPUs."""
        problem, name, (usable, proven) = self.now.problem, KINDS[kind], _bytes(plan)
        field = name.lower()
        totals = least_total(problem, field, usable)
        if totals is None:
            yield f"More {name} is not enough: the reservation takes all of it."
            return
        least, need = (least_total(problem, field, proven) or totals)[0], totals[1]
        per_gpu = f", {_gib(need)} GiB per GPU," if gpus > 1 else ""
        present = self._present[name]
        topology = with_memory(problem.topology, **{field: need})
        more = changed(problem, topology=topology)
        yield replace(self.now.with_memory(kind, usable), problem=more).remedy(
            plan,
            deadline,
            (
                *(f"{name} per {holder}", "GiB"),
                *(gpus * present / GIB, gpus * need / GIB, gpus * least / GIB),
            ),
            f"Give each {holder} {_gib(gpus * need)} GiB of {name}{per_gpu} in place of "
            f"{_gib(gpus * present)}.",
        )

    def _batch(self, deadline: Deadline) -> Results:
        """A smaller batch, by bisection."""
        self._check_can_enumerate(deadline)
        now = self.now.problem.batch_size
        fits: tuple[int, Flat, Found] | None = None
        above = excluded = now + (not self._infeasible)  # a size that fits not; proven not to fit
        size = 1 if excluded > 1 else 0
        while size and not deadline.passed:
            flat = Flat.of(changed(self.now.problem, batch_size=size, options=None))
            plan = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            if isinstance(plan, Found):
                fits = size, flat, plan
            else:
                above = size
                excluded = size if math.isinf(plan.bound) else excluded
            size = (fits[0] + above) // 2 if fits and above - 1 > fits[0] * _NEAR_ENOUGH else 0
        if fits is None:
            yield _not_enough("A smaller batch", math.inf if excluded == 1 else 0.0, deadline)
            return
        size, flat, plan = fits
        amounts = ("batch size", "", now, size, excluded - 1)
        change = f"Use a batch size of {size} per GPU in place of {now}."
        yield flat.remedy(plan, deadline, amounts, change)

    def _hosts(self, deadline: Deadline) -> Results:
        """More hosts of the present size: the next number is tried until a plan fits."""
        host, now = self.now.problem.topology.local_world_size, self.now.problem.topology.world_size
        hosts = -(-now // host)
        least = None  # the first number that is not proven to be insufficient
        refused: dict[int, str] = {}
        for number in range(hosts + 1, _MOST_HOSTS * hosts + 1):
            gpus = number * host
            self._check_can_enumerate(deadline, number / hosts)
            try:
                flat = Flat.of(on_ranks(self.now.problem, gpus))
            except Exception as error:  # as MPZCH tables, whose buckets all ranks must share evenly
                refused[gpus] = one_line(error)
                continue
            plan = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            least = gpus if least is None and math.isfinite(plan.bound) else least
            if isinstance(plan, Found):
                proven = least if least is not None and self._infeasible else now
                amounts = ("GPUs", "", now, gpus, proven)
                change = f"Use {gpus} GPUs, {number} hosts of {host}, in place of {now}."
                yield flat.remedy(plan, deadline, amounts, change)
                break
        else:
            how = "are not enough alone" if least is None else "gave no plan"
            yield f"More GPUs, up to {gpus}, {how}."
        if refused:
            first = ", ".join(map(str, list(refused)[:3])) + ", ..." * (len(refused) > 3)
            yield f"No plan is possible on {first} GPUs: {next(iter(refused.values()))}"

    def _ddr(self, deadline: Deadline) -> Results:
        """More host memory."""
        least = self._least_memory(DDR, deadline.after(0.5))
        if not isinstance(least, Found):
            yield _not_enough("More host memory", least.bound, deadline)
        elif _bytes(least)[0] > self._usable[DDR]:
            host = self.now.problem.topology.local_world_size
            yield from self._more_memory(DDR, least, deadline, "host", host)


def _bytes(plan: Found) -> tuple[int, int]:
    """Return the bytes that a plan needs and the least that any plan needs, from GiB."""
    return round(plan.rating * GIB), math.ceil(plan.bound * GIB)


def _gib(amount: int) -> str:
    return f"{math.ceil(amount / GIB * 1000) / 1000:,.7g}"


def _sentence(amounts: Amounts, changes: tuple[str, ...], rating: float) -> str:
    """Return the changes, with the amount that is proven to be insufficient and the plan's time."""
    _, unit, now, sufficient, proven = amounts
    takes = f"the plan takes {_written(rating, up=True)} ms"
    if not changes:
        return f"Nothing to change: a plan fits ({takes})."
    less = "less" if sufficient > now else "more"
    proof = f"not proven that {less} is insufficient"
    if proven != now or sufficient == now:
        amount = f"{_written(proven, up=sufficient <= now)} {unit}".strip()
        proof = f"{less} than {amount} is proven insufficient"
    return f"{' '.join(changes)} ({proof}; {takes})"


def _written(value: float, up: bool) -> str:
    """Return a number with four digits, rounded up or down; a whole number has all its digits."""
    if value == round(value):
        return f"{value:.0f}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    return f"{(math.ceil if up else math.floor)(value / unit) * unit:.4g}"


def _not_enough(what: str, bound: float, deadline: Deadline) -> str:
    """Return a sentence on a change without a plan; an infinite bound proves that none fits."""
    if math.isinf(bound):
        return f"{what} is not enough alone."
    when = " before the time was up" if deadline.passed else ""
    return f"{what}: neither a plan nor a proof that it is not enough was found{when}."
