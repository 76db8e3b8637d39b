"""Finds the remedies for a problem without a plan, each with a plan and a proof."""

import math
from collections.abc import Callable, Iterator

from harness.contract import Remedies
from planners.embedding.best_plan.search import can_be_placed_locally
from planners.embedding.decision import Plan, torchrec_quiet
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import (
    changed,
    on_ranks,
    reserving,
    roomy,
    total_for,
    with_batch,
    with_memory,
)
from planners.embedding.remedies.relaxing import relaxed
from planners.embedding.remedies.searching import DDR, GIB, HBM, Flat, Shown, fitting_nowhere
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found

Results = Iterator[Shown | str]
"""Remedies, and sentences on remedies that were not found."""

_STEPS = 6  # share the time: HBM, DDR, hosts, batch, constraints, then better plans
_SHARE_OF_TEST = 0.25  # of a step's remaining time, for one batch size or number of hosts
_NEAR_ENOUGH = 1.01  # between a batch size that is enough and one that is not
_MOST_HOSTS = 8  # times the present hosts


def remedies(problem: EmbeddingProblem, seconds: float) -> Remedies[EmbeddingProblem, Plan]:
    """Return the remedies for a problem without a plan, the smallest relative change first.

    Each remedy is enough alone. After `seconds` the search ends with the remedies found by then;
    only enumerating the options of a large problem may take longer.
    """
    if problem.live is not None:  # its reservation leaves the captured memory, whatever changes
        return Remedies((), ("Remedies of a captured problem need other machines: -t and -n.",), ())
    warm_up.compile_ahead(warm_up.BEST_PLAN)
    deadline = Deadline(seconds)
    with torchrec_quiet():
        search = _Search(problem)
        if not can_be_placed_locally(search.now.space, search.now.devices):
            return Remedies((), ("Remedies are unknown where tables depend on each other.",), ())
        causes = tuple(search.lonely())
        findings: list[str] = []
        shown: list[Shown] = []
        for number, step in enumerate(search.steps):
            if deadline.passed:
                findings.append("The time was up before all remedies were tried.")
                break
            for result in step(deadline.after(1 / (_STEPS - number))):
                if isinstance(result, str):
                    findings.append(result)
                else:
                    shown.append(result)
            if any(remedy.size <= 0 for remedy in shown):
                break
        shown.sort(key=lambda remedy: remedy.size)
        improved = [
            remedy.remedy(deadline.after(1 / (len(shown) - number)))
            for number, remedy in enumerate(shown)
        ]
    return Remedies(causes, tuple(findings), tuple(improved))


class _Search:
    """The steps of the search; each yields remedies, or sentences on remedies not found."""

    def __init__(self, problem: EmbeddingProblem) -> None:
        self._problem = problem
        self._roomy = roomy(problem)
        self.now = Flat.of(self._roomy)
        self._infeasible = self._roomy is not problem  # proven for the problem as it is
        self.steps: list[Callable[[Deadline], Results]] = [self._hbm, self._ddr]
        if problem.options is None or not problem.options.fed:
            self.steps += [self._hosts, self._batch, self._constraints]

    def lonely(self) -> Iterator[str]:
        """Yield sentences on tables that fit nowhere on their own."""
        return fitting_nowhere(self.now) if self._roomy is self._problem else iter(())

    def _hbm(self, deadline: Deadline) -> Results:
        """More HBM on each GPU, and a smaller reservation."""
        found = self.now.least_memory(HBM, deadline)
        self._infeasible |= math.isinf(found.bound)
        if not isinstance(found, Found):
            yield _not_enough("More HBM", found.bound)
            return
        usable, proven = _bytes(found)
        present = [device.storage.hbm for device in self._problem.topology.devices]
        now = min(self._problem.usable_hbm)
        self._infeasible |= proven > now
        flat = self.now.with_memory(HBM, usable)
        if self._roomy is self._problem and usable <= now:
            yield Shown("nothing", "", 0, 0, 0, 0.0, (), self._problem, self.now, found)
            return
        need, least = (total_for(self._roomy, "hbm", amount) for amount in (usable, proven))
        yield Shown(
            name="HBM per GPU",
            unit="GiB",
            now=min(present) / GIB,
            sufficient=need / GIB,
            proven=max(least, min(present)) / GIB,
            size=need / min(present) - 1,
            changes=(f"Give each GPU {_gib(need)} GiB of HBM in place of {_gib(min(present))}.",),
            problem=changed(self._problem, topology=with_memory(self._problem.topology, hbm=need)),
            flat=flat,
            found=found,
        )
        if usable > min(present):
            yield "A smaller reservation is not enough: the tables need more than all HBM."
            return
        reserved, allowed = (1 - part / min(present) for part in (now, usable))
        yield Shown(
            name="HBM after reservation",
            unit="%",
            now=100 * now / min(present),
            sufficient=100 * usable / min(present),
            proven=100 * max(proven, now) / min(present),
            size=usable / max(now, 1) - 1,
            changes=(
                f"Reserve at most {_percent(allowed)} of each GPU's HBM in place of "
                f"{100 * reserved:.4g} %.",
            ),
            problem=reserving(self._problem, usable),
            flat=flat,
            found=found,
        )

    def _ddr(self, deadline: Deadline) -> Results:
        """More host memory."""
        found = self.now.least_memory(DDR, deadline)
        self._infeasible |= math.isinf(found.bound)
        if not isinstance(found, Found):
            yield _not_enough("More host memory", found.bound)
            return
        usable, proven = _bytes(found)
        self._infeasible |= proven > min(self._problem.usable_ddr)
        topology = self._problem.topology
        need, least = (total_for(self._roomy, "ddr", amount) for amount in (usable, proven))
        host, now = topology.local_world_size, min(d.storage.ddr for d in topology.devices)
        if self._roomy is not self._problem or usable <= min(self._problem.usable_ddr):
            return
        yield Shown(
            name="DDR per host",
            unit="GiB",
            now=host * now / GIB,
            sufficient=host * need / GIB,
            proven=host * max(least, now) / GIB,
            size=need / max(now, 1) - 1,
            changes=(
                f"Give each host of {host} GPUs {_gib(host * need)} GiB of DDR, "
                f"{_gib(need)} GiB per GPU, in place of {_gib(host * now)}.",
            ),
            problem=changed(self._problem, topology=with_memory(topology, ddr=need)),
            flat=self.now.with_memory(DDR, usable),
            found=found,
        )

    def _hosts(self, deadline: Deadline) -> Results:
        """More hosts of the present size: the next number is tried until a plan fits."""
        host = self._problem.topology.local_world_size
        now = self._problem.topology.world_size
        hosts = -(-now // host)
        least = None  # the first number that is not proven to be insufficient
        for number in range(hosts + 1, _MOST_HOSTS * hosts + 1):
            if deadline.passed:
                break
            problem = on_ranks(self._problem, number * host)
            flat = Flat.of(problem)
            found = flat.any_plan(deadline.after(_SHARE_OF_TEST))
            least = number if least is None and math.isfinite(found.bound) else least
            if isinstance(found, Found):
                assert least is not None
                yield Shown(
                    name="GPUs",
                    unit="",
                    now=now,
                    sufficient=number * host,
                    proven=least * host if self._infeasible else now,
                    size=number * host / now - 1,
                    changes=(
                        f"Use {number * host} GPUs, {number} hosts of {host}, in place of {now}.",
                    ),
                    problem=problem,
                    flat=flat,
                    found=found,
                )
                return
        tried = (number - 1) * host
        if tried > now:
            how = "are not enough alone" if least is None else "gave no plan"
            yield f"More GPUs, up to {tried}, {how}."

    def _batch(self, deadline: Deadline) -> Results:
        """A smaller batch, by bisection."""
        now = self._problem.batch_size
        tests = _Batches(self._problem, now + (not self._infeasible))
        while (size := tests.next()) and not deadline.passed:
            tests.test(size, deadline.after(_SHARE_OF_TEST))
        if tests.fits is None:
            yield _not_enough("A smaller batch", math.inf if tests.excluded == 1 else 0.0)
            return
        size, problem, flat, found = tests.fits
        yield Shown(
            name="batch size",
            unit="",
            now=now,
            sufficient=size,
            proven=tests.excluded - 1,
            size=1 - size / now,
            changes=(f"Use a batch size of {size} per GPU in place of {now}.",),
            problem=problem,
            flat=flat,
            found=found,
        )

    def _constraints(self, deadline: Deadline) -> Results:
        """Constraints of as few tables as possible."""
        yield from relaxed(self._problem, self._infeasible, deadline)


class _Batches:
    """Bisects for the largest batch size that fits and the smallest that is proven not to fit."""

    def __init__(self, problem: EmbeddingProblem, excluded: int) -> None:
        self._problem = problem
        self.excluded = excluded  # the smallest size proven not to fit
        self.fits: tuple[int, EmbeddingProblem, Flat, Found] | None = None
        self._undecided: tuple[int, int] | None = None  # the smallest and the largest such size

    def next(self) -> int | None:
        """Return the next size to test, or None if the two are near enough."""
        if self.fits is None:
            return 1 if self.excluded > 1 and self._undecided is None else None
        low, high = self._undecided or (self.excluded, 0)
        for begin, end in ((self.fits[0], low), (high, self.excluded)):
            if begin and end - 1 > begin * _NEAR_ENOUGH:
                return (begin + end) // 2
        return None

    def test(self, size: int, deadline: Deadline) -> None:
        """Search for a plan with a batch size, or for a proof that none fits."""
        problem = with_batch(self._problem, size)
        flat = Flat.of(problem)
        found = flat.any_plan(deadline)
        if isinstance(found, Found):
            self.fits = size, problem, flat, found
            if self._undecided and self._undecided[0] <= size:
                self._undecided = None
        elif math.isinf(found.bound):
            self.excluded = size
        else:
            low, high = self._undecided or (size, size)
            self._undecided = min(low, size), max(high, size)


def _bytes(found: Found) -> tuple[int, int]:
    """Return the bytes that a plan needs and the least that any plan needs, from GiB."""
    return round(found.rating * GIB), math.ceil(found.bound * GIB)


def _not_enough(what: str, bound: float) -> str:
    if math.isinf(bound):
        return f"{what} is not enough alone."
    return f"{what}: neither a plan nor a proof that it is not enough was found."


def _gib(amount: int) -> str:
    return f"{math.ceil(amount / GIB * 1000) / 1000:,.7g}"


def _percent(share: float) -> str:
    return f"{math.floor(share * 1e4) / 100:.4g} %"
