"""The types for measuring plans on this machine, and for calibrating a topology with them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from harness.contract.variants import Prepared

P = TypeVar("P", contravariant=True)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of a measurement: device, distribution of the inputs, memory per rank, and seed.

    If `memory_gib` is None, the limit is the device's default.
    """

    device: str
    inputs: str
    memory_gib: float | None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TimedWork:
    """A computation to time; equal computations have equal keys.

    `passes` prepares the passes, such as forward and backward, and returns them by name; each pass
    is timed separately.
    """

    key: str
    passes: Callable[[], Mapping[str, Prepared[Any]]]


@dataclass(frozen=True, slots=True)
class RankWork:
    """The computation of one rank under a decision, which is measured, and its communication.

    `estimated_ms` are the estimated milliseconds of the computation by name of the estimate,
    `modelled_ms` those of the communication. `facts` has, by property such as `kernel`, the value
    that most bytes of its lookups have.
    """

    work: TimedWork
    estimated_ms: Mapping[str, float]
    modelled_ms: float
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision to measure: its name, its fingerprint, and the work of each rank."""

    name: str
    fingerprint: str
    ranks: Sequence[RankWork]


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Decisions on one problem to measure, and notes for the reader, one sentence each.

    `reference_ms` is the reference's time at calibration, in milliseconds. Measured ratios are
    multiplied by it, so results do not depend on the machine's speed today.
    """

    decisions: Sequence[Candidate]
    notes: Sequence[str] = ()
    reference_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Design:
    """The computations that a calibration measures, and a function that fits a machine to them.

    `fit` takes two arguments: milliseconds by a work's key and by pass, and the milliseconds of the
    reference.
    """

    works: Sequence[TimedWork]
    fit: Callable[[Mapping[str, Mapping[str, float]], float], "FittedMachine"]


@dataclass(frozen=True, slots=True)
class FittedFigure:
    """A fitted parameter of a machine with its 95 % interval, in `unit`."""

    name: str
    value: float
    low: float
    high: float
    unit: str


@dataclass(frozen=True, slots=True)
class FormError:
    """The geometric mean error of one form of the estimate, such as torchrec's.

    It is taken over the `points` measured for one `purpose`: to fit to, or held out.
    """

    form: str
    purpose: str
    points: int
    error: float


@dataclass(frozen=True, slots=True)
class FittedMachine:
    """A calibrated machine: its topology file's columns, fitted parameters, and mean errors."""

    columns: Mapping[str, str]
    figures: Sequence[FittedFigure]
    errors: Sequence[FormError]


@dataclass(frozen=True, slots=True)
class RankMemory:
    """The memory of one rank under a decision, estimated, and the call that measures it.

    `measure`, a function of a module, is called in a child process with the picklable `job` and a
    report. It returns bytes by group and term; the group "" is the whole rank. `estimated` has the
    same bytes by name of the estimate; a term may be missing.
    """

    rank: int
    measure: Callable[..., Mapping[str, Mapping[str, int]]]
    job: Any
    estimated: Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, slots=True)
class MemoryCandidate:
    """A decision under one setting, such as an optimizer, and its ranks to measure."""

    name: str
    setting: str
    ranks: Sequence[RankMemory]


@dataclass(frozen=True, slots=True)
class MemorySet:
    """Decisions to measure the memory of, notes for the reader, and the GiB that a rank may take.

    `whole` is the term of the group "" that is compared for whole ranks.
    """

    decisions: Sequence[MemoryCandidate]
    notes: Sequence[str]
    gib: float
    whole: str


class Workbench(Protocol[P]):
    """A device on which a family's decisions are measured, and which can be calibrated.

    On an asynchronous device, which works while the CPU continues, wall time is measured instead of
    CPU time. The `reference` work runs right before each measured one, to compare with.
    """

    device: str
    is_asynchronous: bool
    reference: TimedWork

    def candidates(self, problem: P, number: int) -> CandidateSet:
        """Return up to `number` different decisions; raise UsageError if there are none."""
        ...

    def memory(self, problem: P, number: int) -> MemorySet:
        """Return up to `number` decisions to measure the memory of; raise UsageError if none.

        A workbench may lack this method; then `validate --memory` refuses the family.
        """
        ...

    def design(self, share: float) -> Design:
        """Return the design of a calibration, with about `share` (0 to 1) of its works."""
        ...
