"""Finds the remedies for a problem without a plan, each with a plan and a proof."""

import math
from collections.abc import Callable, Iterator

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
from planners.embedding.remedies.searching import (
    DDR,
    GIB,
    HBM,
    KINDS,
    Flat,
    fitting_nowhere,
    not_enough,
    remedy,
)
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound

Results = Iterator[Remedy[EmbeddingProblem, Plan] | str]
"""Remedies, and sentences on remedies that were not found."""

_SHARE_OF_TEST = 0.25  # of a step's remaining time, for one batch size or number of hosts
_NEAR_ENOUGH = 1.01  # between a batch size that is enough and one that is not
_MOST_HOSTS = 8  # times the present hosts

# What users can change in their script comes before more machines and other machines. Of equally
# small changes, the faster plan comes first.
_PLACE = {
    "nothing": 0,
    "HBM reserved": 1,
    "batch size": 2,
    "GPUs": 3,
    "DDR per host": 4,
    "HBM per GPU": 5,
}


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
    enough.sort(key=lambda remedy: (_PLACE[remedy.name], remedy.rating))
    return Remedies(causes, sentences, tuple(enough))


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
            yield from fitting_nowhere(self.now)

    def _least_memory(self, kind: int, deadline: Deadline) -> Found | NotFound:
        """Search for the plan with the least memory of a kind; note a proof that no plan fits."""
        found = self.now.least_memory(kind, deadline)
        self._infeasible |= found.bound * GIB > int(self.now.devices.storage[:, kind].max())
        return found

    def _hbm(self, deadline: Deadline) -> Results:
        """A smaller reservation, and more HBM on each GPU."""
        found = self._least_memory(HBM, deadline.after(0.5))
        if not isinstance(found, Found):
            yield not_enough("More HBM", found.bound, deadline)
            return
        usable, _ = _bytes(found)
        self.has_plan = usable <= int(self.now.devices.storage[:, HBM].min())
        if self.has_plan:
            best = self.now.best_from(found, deadline)
            yield remedy(self._problem, self.now, best, ("nothing", "", 0, 0, 0))
            return
        if usable > self._present:
            yield "A smaller reservation is not enough: the tables need more than all HBM."
        else:
            yield from self._reservation(found, deadline)
        yield from self._more_memory(HBM, found, deadline, "GPU", 1)

    def _reservation(self, found: Found, deadline: Deadline) -> Results:
        """A smaller reservation, and one for plans in HBM alone.

        The plan with the least HBM has tables in host memory, if it may, and that is slow.
        """
        plans: list[tuple[Flat, Found | NotFound, str]] = [(self.now, found, "")]
        if in_hbm := self.now.in_hbm():
            fast = in_hbm.least_memory(HBM, deadline.after(0.4))
            plans.append((in_hbm, fast, ", with all tables in HBM"))
        present, now = self._present, int(self.now.devices.storage[:, HBM].min())
        reserved = "more than all" if self._refused else f"{100 * (1 - now / present):.4g} %"
        text = "Reserve at most {:.4g} % of each GPU's HBM in place of {}{}."
        least = 0
        for flat, plan, how in plans:
            if not isinstance(plan, Found) or not least < _bytes(plan)[0] <= present:
                continue
            least, proven = _bytes(plan)
            share = share_leaving(present, least)
            percents = (
                100 * (1 - now / present),
                100 * share,
                100 * (1 - max(proven, now) / present),
            )
            flat = flat.with_memory(HBM, least)
            yield remedy(
                reserving(self._problem, share),
                flat,
                flat.best_from(plan, deadline.after(0.4)),
                ("HBM reserved", "%", *percents),
                text.format(100 * share, reserved, how),
            )

    def _more_memory(
        self, kind: int, found: Found, deadline: Deadline, holder: str, gpus: int
    ) -> Results:
        """More memory of a kind on each holder, which serves a number of GPUs."""
        name, topology, (usable, proven) = KINDS[kind], self._problem.topology, _bytes(found)
        field = name.lower()
        totals = least_total(self._problem, field, usable)
        if totals is None:
            yield f"More {name} is not enough: the reservation takes all of it."
            return
        least, need = (least_total(self._problem, field, proven) or totals)[0], totals[1]
        present = min(getattr(device.storage, field) for device in topology.devices)
        each = f", {_gib(need)} GiB per GPU," if gpus > 1 else ""
        flat = self.now.with_memory(kind, usable)
        now_gib, need_gib, least_gib = (gpus * amount / GIB for amount in (present, need, least))
        yield remedy(
            changed(self._problem, topology=with_memory(topology, **{field: need})),
            flat,
            flat.best_from(found, deadline),
            (f"{name} per {holder}", "GiB", now_gib, need_gib, least_gib),
            f"Give each {holder} {_gib(gpus * need)} GiB of {name}{each} in place of "
            f"{_gib(gpus * present)}.",
        )

    def _batch(self, deadline: Deadline) -> Results:
        """A smaller batch, by bisection."""
        self._check_can_enumerate(deadline)
        now = self._problem.batch_size
        fits = None
        above = excluded = now + (not self._infeasible)  # a size that fits not; proven not to fit
        size = 1 if excluded > 1 else 0
        while size and not deadline.passed:
            problem = with_batch(self._problem, size)
            flat = Flat.of(problem)
            found = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            if isinstance(found, Found):
                fits = size, problem, flat, found
            else:
                above = size
                excluded = size if math.isinf(found.bound) else excluded
            size = (fits[0] + above) // 2 if fits and above - 1 > fits[0] * _NEAR_ENOUGH else 0
        if fits is None:
            yield not_enough("A smaller batch", math.inf if excluded == 1 else 0.0, deadline)
            return
        size, problem, flat, plan = fits
        yield remedy(
            problem,
            flat,
            flat.best_from(plan, deadline),
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
            found = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            least = gpus if least is None and math.isfinite(found.bound) else least
            if isinstance(found, Found):
                assert least is not None
                yield remedy(
                    problem,
                    flat,
                    flat.best_from(found, deadline),
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
        found = self._least_memory(DDR, deadline.after(0.5))
        if not isinstance(found, Found):
            yield not_enough("More host memory", found.bound, deadline)
        elif _bytes(found)[0] > min(self._problem.usable_ddr):
            host = self._problem.topology.local_world_size
            yield from self._more_memory(DDR, found, deadline, "host", host)


def _bytes(found: Found) -> tuple[int, int]:
    """Return the bytes that a plan needs and the least that any plan needs, from GiB."""
    return round(found.rating * GIB), math.ceil(found.bound * GIB)


def _gib(amount: int) -> str:
    return f"{math.ceil(amount / GIB * 1000) / 1000:,.7g}"
