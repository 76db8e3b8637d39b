"""Decisions measured on this machine, and machines calibrated by measurements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from harness.contract.variants import Prepared

P = TypeVar("P", contravariant=True)


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure with: a device, how inputs are drawn, and how much memory a rank may take.

    Where that is None, the device says how much.
    """

    device: str
    inputs: str
    memory_gib: float | None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Something that is run and timed; `key` is equal where the same is done.

    `passes` prepares its calls by name, each of which is timed apart from the others.
    """

    key: str
    passes: Callable[[], Mapping[str, Prepared[Any]]]


@dataclass(frozen=True, slots=True)
class RankWork:
    """What one rank of a decision does.

    Attributes:
        work: what it computes, to be measured.
        estimated_ms: how long that takes by each estimate.
        modelled_ms: how long by the estimate it sends and receives, which is not measured.
        facts: what most of its time goes to, by the names of `Measurable.facts`.
    """

    work: TimedWork
    estimated_ms: Mapping[str, float]
    modelled_ms: float
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision to measure: who made it, its fingerprint, and its ranks."""

    name: str
    fingerprint: str
    ranks: Sequence[RankWork]


@dataclass(frozen=True, slots=True)
class OnBench:
    """What is measured, on a device that is ready.

    Attributes:
        device: what it is.
        is_asynchronous: whether the device works beside the CPU, so that wall time counts.
        reference: what all else is set against, run before each of them.
        notes: what a reader must know, a sentence each.
    """

    device: str
    is_asynchronous: bool
    reference: TimedWork
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CandidatesOnBench(OnBench):
    """Decisions on one problem to be measured.

    `reference_ms` is what the reference took where the machine was calibrated: with it times are
    told in the same unit, however fast the machine is today.
    """

    candidates: Sequence[Candidate] = ()
    reference_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SweepOnBench(OnBench):
    """A designed sweep, and what makes a topology of its times.

    `fit` is given milliseconds by the key of a work and by pass, and those of the reference.
    """

    works: Sequence[TimedWork] = ()
    fit: Callable[[Mapping[str, Mapping[str, float]], float], "FittedMachine"] | None = None


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
    """By how much a form of the estimate is off on average, on points of one purpose."""

    form: str
    purpose: str
    points: int
    error: float


@dataclass(frozen=True, slots=True)
class FittedMachine:
    """The figures of a machine: `columns` of a topology file, and the `coefficients` of one.

    `used` names the figures that are columns, as far as they were measured.
    """

    columns: Mapping[str, str]
    figures: Sequence[FittedFigure]
    errors: Sequence[FormError]


class Measurable(Protocol[P]):
    """How a family's decisions are measured, and its machines calibrated.

    `facts` names what residuals are shown by.
    """

    facts: Sequence[str]

    def candidates(self, problem: P, number: int, bench: Bench) -> CandidatesOnBench:
        """Return so many different decisions on a problem; raises UsageError where none can be."""
        ...

    def sweep(self, bench: Bench, share: float) -> SweepOnBench:
        """Return what to measure to calibrate a machine, or a share of that."""
        ...
