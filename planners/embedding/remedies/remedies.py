"""Finds the remedies for a problem without a plan, each with a plan and a proof."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torch import nn
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.types import ModuleSharder

from harness.contract import Remedies, Remedy, ShardbenchError, one_line
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.decision import Plan, torchrec_quiet
from planners.embedding.problem import EmbeddingProblem, changed, with_memory
from planners.embedding.remedies.changes import (
    DDR,
    GIB,
    HBM,
    KINDS,
    Flat,
    least_of,
    least_total,
    on_ranks,
    share_leaving,
)
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound, placed

if TYPE_CHECKING:
    from planners.embedding.drop_in.planner import Planner

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

    The planner must have torchrec's or a machine's estimates, since the changed problems are
    estimated again.
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
            machine=planner.machine,
        )
        outcome = remedies(changed(problem), seconds)
        changes = (remedy.sentence for remedy in outcome.remedies)
        sentences = [*outcome.causes, *changes, *outcome.findings]
    except Exception as error:  # the caller raises torchrec's error, which matters more
        sentences = [f"Remedies were not searched, {one_line(error)}"]
    return "\n".join(f"- {sentence}" for sentence in sentences)


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
            yield _remedy(self.now, least, deadline, ("nothing", "", 0, 0, 0))
            return
        if usable > self._present["HBM"]:
            yield "A smaller reservation is not enough: the tables need more than all HBM."
        else:
            yield self._reservation(least, deadline)
        yield from self._more_memory(HBM, least, deadline, "GPU", 1)

    def _reservation(self, least: Found, deadline: Deadline) -> Remedy[EmbeddingProblem, Plan]:
        """A smaller reservation."""
        present, now, (usable, proven) = self._present["HBM"], self._usable[HBM], _bytes(least)
        share = share_leaving(present, usable)
        reserved = 100 * (1 - now / present)
        most = 100 * (1 - max(proven, now) / present)
        place = "more than all" if self._refused else f"{reserved:.4g} %"
        reservation = partial(FixedPercentageStorageReservation, share)
        less = changed(self.now.problem, reservation=reservation)
        return _remedy(
            replace(self.now.with_memory(HBM, usable), problem=less),
            least,
            deadline.after(0.4),
            ("HBM reserved", "%", reserved, 100 * share, most),
            f"Reserve at most {100 * share:.4g} % of each GPU's HBM in place of {place}.",
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
        present = self._present[name]
        more = changed(problem, topology=with_memory(problem.topology, **{field: need}))
        per_gpu = f", {_written(need / GIB, up=True)} GiB per GPU," if gpus > 1 else ""
        now, enough, insufficient = (gpus * amount / GIB for amount in (present, need, least))
        yield _remedy(
            replace(self.now.with_memory(kind, usable), problem=more),
            plan,
            deadline,
            (f"{name} per {holder}", "GiB", now, enough, insufficient),
            f"Give each {holder} {_written(enough, up=True)} GiB of {name}{per_gpu} in place of "
            f"{_written(now, up=True)}.",
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
        yield _remedy(flat, plan, deadline, amounts, change)

    def _hosts(self, deadline: Deadline) -> Results:
        """More hosts of the present size: the next number is tried until a plan fits."""
        host, now = self.now.problem.topology.local_world_size, self.now.problem.topology.world_size
        hosts = -(-now // host)
        least = None  # the first number that is not proven to be insufficient
        for number in range(hosts + 1, _MOST_HOSTS * hosts + 1):
            gpus = number * host
            self._check_can_enumerate(deadline, number / hosts)
            try:
                flat = Flat.of(on_ranks(self.now.problem, gpus))
            except Exception:  # as of MPZCH tables, whose buckets all ranks must share evenly
                least = least or gpus
                continue
            plan = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            least = gpus if least is None and math.isfinite(plan.bound) else least
            if isinstance(plan, Found):
                proven = least if least is not None and self._infeasible else now
                amounts = ("GPUs", "", now, gpus, proven)
                change = f"Use {gpus} GPUs, {number} hosts of {host}, in place of {now}."
                yield _remedy(flat, plan, deadline, amounts, change)
                break
        else:
            how = "are not enough alone" if least is None else "gave no plan"
            yield f"More GPUs, up to {gpus}, {how}."

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


def _remedy(
    flat: Flat, known: Found, deadline: Deadline, amounts: Amounts, *changes: str
) -> Remedy[EmbeddingProblem, Plan]:
    """Return the changes that make the problem `flat`, with a plan at least as fast as `known`."""
    plan = flat.best_from(known, deadline)
    return Remedy(
        *amounts,
        changes=changes,
        rating=plan.rating,
        problem=replace(flat.problem, changes=changes),
        decision=Plan(tuple(placed(flat.space, plan))),
        sentence=_sentence(amounts, changes, plan.rating),
    )


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
