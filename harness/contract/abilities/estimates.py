"""Plans measured on this machine, and machines calibrated by measurements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from harness.contract.variants import Prepared

P = TypeVar("P", contravariant=True)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of measurements: device, distribution of inputs, and memory of a rank.

    With `memory_gib` None the device decides.
    """

    device: str
    inputs: str
    memory_gib: float | None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work to be timed. Works that do the same have equal keys.

    `passes` prepares its calls by name; each pass is timed on its own.
    """

    key: str
    passes: Callable[[], Mapping[str, Prepared[Any]]]


@dataclass(frozen=True, slots=True)
class RankWork:
    """The work of one rank of a decision.

    Attributes:
        work: its computation, to be measured.
        estimated_ms: the time of that computation by each estimate.
        modelled_ms: the time of its communication by the estimate, which is not measured.
        facts: the kind of table that most of its time goes to, by name of the fact.
    """

    work: TimedWork
    estimated_ms: Mapping[str, float]
    modelled_ms: float
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision to measure: its maker, its fingerprint, and its ranks."""

    name: str
    fingerprint: str
    ranks: Sequence[RankWork]


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Decisions on one problem to measure, with notes: sentences that a reader must know.

    `reference_ms` is the time of the reference when the machine was calibrated. With it times keep
    their unit, however fast the machine is today.
    """

    decisions: Sequence[Candidate]
    notes: Sequence[str] = ()
    reference_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Design:
    """The works that a calibration measures, and the fit of a machine to their times.

    `fit` takes milliseconds by key of a work and by pass, and those of the reference.
    """

    works: Sequence[TimedWork]
    fit: Callable[[Mapping[str, Mapping[str, float]], float], "FittedMachine"]


@dataclass(frozen=True, slots=True)
class FittedFigure:
    """A figure with its interval, both in `unit`."""

    name: str
    value: float
    low: float
    high: float
    unit: str


@dataclass(frozen=True, slots=True)
class FormError:
    """The mean error of one form of the estimate, on the points of one purpose."""

    form: str
    purpose: str
    points: int
    error: float


@dataclass(frozen=True, slots=True)
class FittedMachine:
    """A calibrated machine: columns of its topology file, fitted figures, and their errors."""

    columns: Mapping[str, str]
    figures: Sequence[FittedFigure]
    errors: Sequence[FormError]


class Workbench(Protocol[P]):
    """A device that is ready to measure the decisions of a family and to be calibrated.

    Attributes:
        device: the device in words.
        is_asynchronous: whether the device works while the CPU goes on, so that wall time counts.
        reference: the work that runs right before each measured one.
    """

    device: str
    is_asynchronous: bool
    reference: TimedWork

    def candidates(self, problem: P, number: int) -> CandidateSet:
        """Return up to `number` different decisions; raises UsageError where there are none."""
        ...

    def design(self, share: float) -> Design:
        """Return the works of a calibration, or a share of them."""
        ...
