"""The types for measuring plans on this machine, and for calibrating it."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harness.contract.variants import Prepared
from harness.model.declared import Amount, checked
from harness.model.errors import UsageError
from harness.model.files import read_file

P = TypeVar("P", contravariant=True)

Bytes = Mapping[str, Mapping[str, int]]
"""Bytes of memory by group and term; the group "" is the whole rank."""


class BenchOptions(Struct, frozen=True):
    """Options of a measurement: device, distribution of the inputs, memory per rank, and seed.

    If `memory_gib` is None, the limit is the device's default.
    """

    device: str
    inputs: str
    memory_gib: float | None
    seed: int = 0


class TimedWork(Struct, frozen=True):
    """A computation to time; equal computations have equal keys.

    `passes` prepares the passes, such as forward and backward, and returns them by name; each pass
    is timed separately.
    """

    key: str
    passes: Callable[[], Mapping[str, Prepared[Any]]]


class RankWork(Struct, frozen=True):
    """The computation of one rank under a decision, which is measured, and its communication.

    `estimated_ms` are the estimated milliseconds of the computation by name of the estimate,
    `modelled_ms` those of the communication. `facts` has, by property such as `kernel`, the value
    that most bytes of its lookups have. `parts` describes what is computed, for a data set.
    """

    work: TimedWork
    estimated_ms: dict[str, float]
    modelled_ms: float
    facts: dict[str, str]
    parts: Sequence[Mapping[str, Any]] = ()


class Candidate(Struct, frozen=True):
    """A decision to measure: its name, its fingerprint, and the work of each rank."""

    name: str
    fingerprint: str
    ranks: Sequence[RankWork]


class CandidateSet(Struct, frozen=True):
    """Decisions on one problem to measure, and notes for the reader, one sentence each.

    `reference_ms` is the reference's time at calibration, in milliseconds. Measured ratios are
    multiplied by it, so results do not depend on the machine's speed today.
    """

    decisions: Sequence[Candidate]
    notes: Sequence[str] = ()
    reference_ms: float | None = None


class FittedFigure(Struct, frozen=True):
    """A fitted parameter of a machine with its 95 % interval, in `unit`."""

    name: str
    value: float
    low: float
    high: float
    unit: str


class FitError(Struct, frozen=True):
    """The geometric mean error of a fit over the `points` of one `purpose`: fitted, or held out."""

    purpose: str
    points: int
    error: float


class FittedMachine(Struct, frozen=True):
    """A calibrated machine: fitted parameters, and mean errors."""

    figures: Sequence[FittedFigure]
    errors: Sequence[FitError]


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """A calibration as a file keeps it.

    `device` is the name that the driver or the processor has. `figures` are parameters with both
    ends of their 95 % intervals; `errors` are mean errors of the fit by purpose of the points.
    """

    device: str
    measured: str  # the date
    packages: Mapping[str, str]
    figures: Mapping[str, tuple[Amount, Amount, Amount]]
    errors: Mapping[str, Amount] = {}
    name: str = ""  # that of the file

    @property
    def values(self) -> dict[str, float]:
        """The parameters without their intervals."""
        return {name: value for name, (value, *_) in self.figures.items()}


def read_machine(path: str | Path) -> Machine:
    """Read a file of `shardbench calibrate`; raise UsageError if it is not one."""
    text = read_file(path).decode("utf-8-sig", "replace")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not a file of `shardbench calibrate`: {error}.") from None
    return replace(checked(document, Machine, str(path)), name=Path(path).stem)


class Design(Struct, frozen=True):
    """The computations that a calibration measures, and a function that fits a machine to them.

    `fit` takes two arguments: milliseconds by a work's key and by pass, and the milliseconds of the
    reference.
    """

    works: Sequence[TimedWork]
    fit: Callable[[Mapping[str, Mapping[str, float]], float], FittedMachine]


class RankMemory(Struct, frozen=True):
    """The memory of a rank under a decision and a setting, such as an optimizer.

    `measure`, a function of a module, is called in a child process with the picklable `job` and a
    report, and returns the bytes. `estimated` has the same bytes by name of the estimate; a term
    may be missing.
    """

    decision: str
    setting: str
    rank: int
    measure: Callable[..., Bytes]
    job: Any
    estimated: Mapping[str, Bytes]

    def __str__(self) -> str:
        return f"rank {self.rank} of plan '{self.decision}' with {self.setting}"


class MemorySet(Struct, frozen=True):
    """Ranks to measure the memory of, notes for the reader, and the GiB that a rank may take.

    `whole` is the term of the group "" that is compared for whole ranks.
    """

    ranks: Sequence[RankMemory]
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
        """Return the ranks of up to `number` decisions; raise UsageError if there are none.

        A workbench may lack this method; then `validate --memory` refuses the family.
        """
        ...

    def design(self, share: float) -> Design:
        """Return the design of a calibration, with about `share` (0 to 1) of its works."""
        ...
