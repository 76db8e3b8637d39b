"""Finds the remedies for a problem without a plan, each with a plan and a proof."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn
from torchrec.distributed.types import ModuleSharder

from harness.contract import Remedies, Remedy, ShardbenchError, one_line
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.decision import Plan, torchrec_quiet
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import (
    changed,
    least_total,
    on_ranks,
    reserving,
    share_leaving,
    with_batch,
    with_memory,
)
from planners.embedding.remedies.searching import DDR, GIB, HBM, KINDS, Flat
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
    results: list[Remedy[EmbeddingProblem, Plan] | str] = []
    with torchrec_quiet():
        search = _Search(problem, deadline)
        if not can_be_placed_locally(search.now.space, search.now.devices):
            return Remedies((), ("Remedies are unknown where tables depend on each other.",), ())
        for number, (name, step) in enumerate(search.steps.items()):
            try:
                for result in step(deadline.after(1 / (len(search.steps) - number))):
                    results.append(result)
            except ShardbenchError as error:
                results.append(f"{name}: not tried to the end, since {error}.")
            except Exception as error:  # torchrec and users' own classes raise errors of many types
                results.append(f"{name}: not tried to the end, since {one_line(error)}")
            if search.has_plan:
                break
        causes = tuple(search.causes())
    sentences = tuple(result for result in results if isinstance(result, str))
    enough = [result for result in results if isinstance(result, Remedy)]
    enough.sort(key=lambda remedy: (_ORDER.index(remedy.name), remedy.rating))
    return Remedies(causes, sentences, tuple(enough))


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


class _Search:
    """The steps of the search; each yields remedies, or sentences on remedies not found."""

    def __init__(self, problem: EmbeddingProblem, deadline: Deadline) -> None:
        self._problem = problem
        self._present = min(device.storage.hbm for device in problem.topology.devices)
        before = deadline.left
        self.now = Flat.of(problem)
        self._seconds_to_enumerate = before - deadline.left
        # The reservation needs more than all HBM, so it is proven that no plan fits.
        self._refused = bool((self.now.devices.storage[:, HBM] < 0).any())
        self._infeasible = self._refused
        self.has_plan = False
        # HBM is first, since its proof helps the other steps.
        self.steps: dict[str, Callable[[Deadline], Results]] = {
            "More HBM or a smaller reservation": self._hbm,
            "A smaller batch": self._batch,
            "More GPUs": self._hosts,
            "More host memory": self._ddr,
        }

    def _check_can_enumerate(self, deadline: Deadline, times: float = 1.0) -> None:
        """Raise ShardbenchError if the options cannot be enumerated again, or not in time."""
        if self._problem.options is not None and self._problem.options.fed:
            raise ShardbenchError("the captured estimates are not those of the installed torchrec")
        if deadline.left < times * self._seconds_to_enumerate:
            raise ShardbenchError("there is too little time")

    def causes(self) -> Iterator[str]:
        """Yield a sentence if no HBM is left, else one for each table that fits nowhere."""
        if self.now.devices.storage[:, HBM].max() <= 0 < self._present:
            yield "The storage reservation leaves no HBM."
        else:
            yield from self.now.fitting_nowhere()

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
        self.has_plan = usable <= int(self.now.devices.storage[:, HBM].min())
        if self.has_plan:
            best = self.now.best_from(least, deadline)
            yield _remedy(self._problem, self.now, best, ("nothing", "", 0, 0, 0))
            return
        if usable > self._present:
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
        present, now = self._present, int(self.now.devices.storage[:, HBM].min())
        reserved = "more than all" if self._refused else f"{100 * (1 - now / present):.4g} %"
        text = "Reserve at most {:.4g} % of each GPU's HBM in place of {}{}."
        usable = 0
        for flat, plan, how in plans:
            if not isinstance(plan, Found) or not usable < _bytes(plan)[0] <= present:
                continue
            usable, proven = _bytes(plan)
            share = share_leaving(present, usable)
            percents = (
                100 * (1 - now / present),
                100 * share,
                100 * (1 - max(proven, now) / present),
            )
            flat = flat.with_memory(HBM, usable)
            yield _remedy(
                reserving(self._problem, share),
                flat,
                flat.best_from(plan, deadline.after(0.4)),
                ("HBM reserved", "%", *percents),
                text.format(100 * share, reserved, how),
            )

    def _more_memory(
        self, kind: int, plan: Found, deadline: Deadline, holder: str, gpus: int
    ) -> Results:
        """More memory of a kind on each holder, which serves a number of GPUs."""
        name, topology, (usable, proven) = KINDS[kind], self._problem.topology, _bytes(plan)
        field = name.lower()
        totals = least_total(self._problem, field, usable)
        if totals is None:
            yield f"More {name} is not enough: the reservation takes all of it."
            return
        least, need = (least_total(self._problem, field, proven) or totals)[0], totals[1]
        present = min(getattr(device.storage, field) for device in topology.devices)
        per_gpu = f", {_gib(need)} GiB per GPU," if gpus > 1 else ""
        flat = self.now.with_memory(kind, usable)
        now_gib, need_gib, least_gib = (gpus * amount / GIB for amount in (present, need, least))
        yield _remedy(
            changed(self._problem, topology=with_memory(topology, **{field: need})),
            flat,
            flat.best_from(plan, deadline),
            (f"{name} per {holder}", "GiB", now_gib, need_gib, least_gib),
            f"Give each {holder} {_gib(gpus * need)} GiB of {name}{per_gpu} in place of "
            f"{_gib(gpus * present)}.",
        )

    def _batch(self, deadline: Deadline) -> Results:
        """A smaller batch, by bisection."""
        self._check_can_enumerate(deadline)
        now = self._problem.batch_size
        fits: tuple[int, EmbeddingProblem, Flat, Found] | None = None
        above = excluded = now + (not self._infeasible)  # a size that fits not; proven not to fit
        size = 1 if excluded > 1 else 0
        while size and not deadline.passed:
            problem = with_batch(self._problem, size)
            flat = Flat.of(problem)
            plan = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            if isinstance(plan, Found):
                fits = size, problem, flat, plan
            else:
                above = size
                excluded = size if math.isinf(plan.bound) else excluded
            size = (fits[0] + above) // 2 if fits and above - 1 > fits[0] * _NEAR_ENOUGH else 0
        if fits is None:
            yield _not_enough("A smaller batch", math.inf if excluded == 1 else 0.0, deadline)
            return
        size, problem, flat, known = fits
        yield _remedy(
            problem,
            flat,
            flat.best_from(known, deadline),
            ("batch size", "", now, size, excluded - 1),
            f"Use a batch size of {size} per GPU in place of {now}.",
        )

    def _hosts(self, deadline: Deadline) -> Results:
        """More hosts of the present size: the next number is tried until a plan fits."""
        if self._refused:
            yield "More GPUs are not enough: the reservation needs more than each GPU's HBM."
            return
        host = self._problem.topology.local_world_size
        now = self._problem.topology.world_size
        hosts = -(-now // host)
        least = None  # the first number that is not proven to be insufficient
        refused: dict[int, Exception] = {}
        for number in range(hosts + 1, _MOST_HOSTS * hosts + 1):
            gpus = number * host
            self._check_can_enumerate(deadline, number / hosts)
            try:
                problem = on_ranks(self._problem, gpus)
                flat = Flat.of(problem)
            except Exception as error:  # as MPZCH tables, whose buckets all ranks must share evenly
                refused[gpus] = error
                continue
            plan = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            least = gpus if least is None and math.isfinite(plan.bound) else least
            if isinstance(plan, Found):
                assert least is not None
                yield _remedy(
                    problem,
                    flat,
                    flat.best_from(plan, deadline),
                    ("GPUs", "", now, gpus, least if self._infeasible else now),
                    f"Use {gpus} GPUs, {number} hosts of {host}, in place of {now}.",
                )
                break
        else:
            how = "are not enough alone" if least is None else "gave no plan"
            yield f"More GPUs, up to {gpus}, {how}."
        if refused:
            first = ", ".join(map(str, list(refused)[:3])) + ", ..." * (len(refused) > 3)
            yield f"No plan is possible on {first} GPUs: {one_line(next(iter(refused.values())))}"

    def _ddr(self, deadline: Deadline) -> Results:
        """More host memory."""
        if self._refused:
            yield "More host memory is not enough: the reservation needs more than all HBM."
            return
        least = self._least_memory(DDR, deadline.after(0.5))
        if not isinstance(least, Found):
            yield _not_enough("More host memory", least.bound, deadline)
        elif _bytes(least)[0] > min(self._problem.usable_ddr):
            host = self._problem.topology.local_world_size
            yield from self._more_memory(DDR, least, deadline, "host", host)


def _bytes(plan: Found) -> tuple[int, int]:
    """Return the bytes that a plan needs and the least that any plan needs, from GiB."""
    return round(plan.rating * GIB), math.ceil(plan.bound * GIB)


def _gib(amount: int) -> str:
    return f"{math.ceil(amount / GIB * 1000) / 1000:,.7g}"


def _remedy(
    problem: EmbeddingProblem, flat: Flat, plan: Found, amounts: Amounts, *changes: str
) -> Remedy[EmbeddingProblem, Plan]:
    """Return the remedy whose changes make `problem`, with a plan of `flat`, its arrays."""
    decision = Plan(tuple(placed(flat.space, plan)))
    changed_problem = replace(problem, changes=changes)
    sentence = _sentence(amounts, changes, plan.rating)
    return Remedy(*amounts, changes, plan.rating, changed_problem, decision, sentence)


def _sentence(amounts: Amounts, changes: tuple[str, ...], rating: float) -> str:
    """Return the changes, with the amount that is proven to be insufficient and the plan's time."""
    _, unit, now, sufficient, proven = amounts
    takes = f"the plan takes {_written(rating, up=True)} ms"
    if not changes:
        return f"Nothing to change: a plan fits ({takes})."
    more = sufficient > now
    if proven == now != sufficient:
        proof = f"not proven that {'less' if more else 'more'} is insufficient"
    else:
        amount = f"{_written(proven, up=not more)} {unit}".strip()
        proof = f"{'less' if more else 'more'} than {amount} is proven insufficient"
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
