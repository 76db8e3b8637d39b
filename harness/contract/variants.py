"""Variants: each sets up a problem as a `Prepared` object, which has the function `run` to time."""

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from harness.execution.upstream import is_ready
from harness.model.errors import RegistryError, ShardbenchError
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
        """Set the variant up on a problem; raise RegistryError if it returns no `Prepared`."""
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
