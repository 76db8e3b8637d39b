"""What a variant is: a function from a problem to something prepared, whose call is timed."""

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from harness.declarations import Claim
from harness.errors import RegistryError
from harness.execution.upstream import is_ready

P = TypeVar("P")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Measured(Generic[D]):
    """A decision whose call was timed elsewhere, e.g. in the child process of a real upstream.

    `wall_s` and `cpu_s` are seconds; they replace what the harness would have measured here.
    """

    decision: D
    wall_s: float
    cpu_s: float
    counters: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[D]):
    """A variant that is ready on a problem; only `run` is timed.

    `installed` is entered around each turn of this variant and left after it, also on errors: a
    variant that changes the process does so there. `renew` is called before each call of `run`,
    untimed: a variant that uses up what it works on makes it anew there. `close` frees what was
    prepared.
    """

    run: Callable[[], D | Measured[D]]
    installed: Callable[[], AbstractContextManager[Any]] = nullcontext
    close: Callable[[], None] = lambda: None
    renew: Callable[[], None] | None = None

    def begin(self) -> None:
        """Make ready for one call of `run`."""
        if self.renew is not None:
            self.renew()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name is missing
        return False


@dataclass(frozen=True, slots=True)
class Variant(Generic[P, D]):
    """One implementation in a family."""

    name: str
    prepare: Callable[[P], Any]
    summary: str
    source: str
    same_as: str | None = None
    is_reference: bool = False
    claim: Claim | None = None
    requires: tuple[str, ...] = ()
    upstream: str = ""

    def prepared(self, problem: P) -> Prepared[D]:
        """Set the variant up on a problem; a plain function `problem -> decision` is wrapped."""
        if self.prepares:
            result = self.prepare(problem)
            if isinstance(result, Prepared):
                return cast(Prepared[D], result)
            raise RegistryError(
                f"Variant '{self.name}' is annotated to return Prepared but returned "
                f"{type(result).__name__}."
            )
        return Prepared(run=lambda: cast(D, self.prepare(problem)))

    @property
    def prepares(self) -> bool:
        """Whether the function sets up (is annotated `-> Prepared`) rather than decides at once."""
        annotation = getattr(self.prepare, "__annotations__", {}).get("return", "")
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        return text.partition("[")[0].rpartition(".")[2] == "Prepared"

    def missing(self) -> tuple[str, ...]:
        """Return what is required and not installed: modules, the folder of a real upstream."""
        missing = [name for name in self.requires if not _is_installed(name)]
        if self.upstream and not is_ready(self.upstream):
            missing.append(f"{self.upstream} (make upstreams)")
        return tuple(missing)
