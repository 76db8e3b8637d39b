"""Variants: each sets up a problem as a `Prepared` object, which has the function `run` to time.

A variant can be a release of a real library ("upstream"), which runs in a child process.
"""

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.contract.recorder import is_observing
from harness.execution.upstream import Upstream, is_ready
from harness.model.errors import NotApplicable, RegistryError, ShardbenchError
from harness.model.statement import Claim

P = TypeVar("P")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Measured(Generic[D]):
    """A decision with times measured elsewhere, e.g. in the child process of a real upstream.

    `wall_s`, `cpu_s` and the values of `phases` are seconds. All figures replace the harness's own
    measurements.
    """

    decision: D
    wall_s: float
    cpu_s: float
    counters: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[D]):
    """A variant that is set up on a problem; only `run` is timed.

    `installed` returns a context manager around each turn (one or several calls); a variant that
    must change the process, e.g. by patching modules, does it in that context. `renew` is called
    before each call of `run`, untimed, so that a variant that uses up its input can make a new
    input. `close` frees the resources. `may_fork` is False if a fork of the process could not call
    `run`, for example because it uses a GPU; a variant whose set-up leaves threads or child
    processes running is never forked.
    """

    run: Callable[[], D | Measured[D]]
    installed: Callable[[], AbstractContextManager[Any]] = nullcontext
    close: Callable[[], None] = lambda: None
    renew: Callable[[], None] | None = None
    may_fork: bool = True

    def begin(self) -> None:
        """Prepare one call of `run`, by `renew` if there is one."""
        if self.renew is not None:
            self.renew()


@dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """A problem that a real library builds in its own process; here only its sizes are known.

    Any family's `build` may return it. `facts` are for reports, the problem's size first; `request`
    has the fields from which the driver builds it, as JSON types. Only variants with an `upstream`
    apply to it.
    """

    facts: Mapping[str, float | str]
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpstreamDecision:
    """A real library's decision on an `UpstreamProblem`; the decision itself stays there."""

    fingerprint: str
    quality: Mapping[str, float]


Reader = Callable[[Any], D]
"""Returns the decision that a driver's answer describes."""


def ask_upstream(
    problem: P | UpstreamProblem,
    name: str,
    driver: Path,
    fields: Mapping[str, Any],
    translate: Callable[[P], tuple[Mapping[str, Any], Reader[D]]] | None = None,
) -> Prepared[Any]:
    """Return a call that lets a real library solve a problem in a child process.

    The driver's answer has `wall_s`, `cpu_s`, and if the request has a true `count`, `counters`;
    for an `UpstreamProblem` also `fingerprint` and perhaps `quality`.

    Args:
        problem: The problem, of the family or of the library.
        name: The library with its release; see `Upstream`.
        driver: The program that answers in the child process.
        fields: Fields that every request has.
        translate: Returns the request for a problem of the family, and the reader of its answer;
            None if the library solves only problems that it builds itself.

    Raises NotApplicable for a problem of the family without `translate`.
    """
    request: Mapping[str, Any]
    read: Reader[Any]
    if isinstance(problem, UpstreamProblem):
        request, read = problem.request, _read_decision
    elif translate is not None:
        request, read = translate(problem)
    else:
        raise NotApplicable(f"{name} solves only problems that it builds itself.")
    upstream = Upstream(name, driver)

    def run() -> Measured[Any]:
        answer = upstream.ask({**request, **fields, "count": is_observing()})
        counters = answer.get("counters", {})
        return Measured(read(answer), answer["wall_s"], answer["cpu_s"], counters)

    return Prepared(run, close=upstream.close)


def _read_decision(answer: Mapping[str, Any]) -> UpstreamDecision:
    return UpstreamDecision(answer["fingerprint"][:16], answer.get("quality", {}))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name is missing
        return False


@dataclass(frozen=True, slots=True)
class Variant(Generic[P, D]):
    """One implementation in a family; see `Declared` for the fields."""

    name: str
    prepare: Callable[[P], Prepared[D]]
    summary: str = ""
    source: str = ""
    same_as: str | None = None
    reference: bool = False
    claim: Claim | None = None
    requires: tuple[str, ...] = ()
    upstream: str = ""

    def prepared(self, problem: P) -> Prepared[D]:
        """Set the variant up on a problem.

        Raises:
            NotApplicable: only a real library solves this problem, and the variant is none.
            RegistryError: the variant returns no `Prepared`.
        """
        if isinstance(problem, UpstreamProblem) and not self.upstream:
            raise NotApplicable("Only variants that run a real library solve this problem.")
        # Imported here, because listing a family's variants runs none of them.
        from harness.execution.usage import helpers

        helpers_before = helpers()
        prepared = self.prepare(problem)
        if not isinstance(prepared, Prepared):
            raise RegistryError(
                f"Variant '{self.name}' returned {type(prepared).__name__}, not Prepared; a "
                "function that decides at once is registered with @FAMILY.decider."
            )
        may_fork = prepared.may_fork and helpers() <= helpers_before
        return prepared if may_fork else replace(prepared, may_fork=False)

    def missing(self) -> tuple[str, ...]:
        """Return the missing requirements: modules, and the folder of a real upstream."""
        missing = [name for name in self.requires if not _is_installed(name)]
        if self.upstream and not is_ready(self.upstream):
            missing.append(f"{self.upstream} (make upstreams)")
        return tuple(missing)

    def check_installed(self) -> None:
        """Raise ShardbenchError if a module or upstream that the variant needs is missing."""
        if missing := self.missing():
            raise ShardbenchError(f"'{self.name}' is not installed: it needs {', '.join(missing)}.")
