"""What a child process tells its parent."""

from dataclasses import dataclass

from harness.measuring.check import Checked
from harness.measuring.profile.flame_graph import Profiled
from harness.measuring.sampling import Times
from harness.model.cell import Progress


@dataclass(frozen=True, slots=True)
class Prepares:
    """The named variant is about to be set up, untimed."""

    variant: str


@dataclass(frozen=True, slots=True)
class TurnBegins:
    """The named variant is about to be called."""

    variant: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is over; what follows is not part of it."""

    variant: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """One counted turn: its block, and seconds of a call as in `Times`."""

    variant: str
    block: int
    wall_s: float
    cpu_s: float
    thread_cpu_s: float | None


@dataclass(frozen=True, slots=True)
class Reported:
    """How far the checked call has come, where it tells, and its peak memory in bytes so far."""

    progress: Progress | None
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class CheckDone:
    """The checked call passed; `facts` describe the problem."""

    checked: Checked
    facts: dict[str, float | str]


@dataclass(frozen=True, slots=True)
class SamplingDone:
    """All timed turns are over; what was prepared is closed next."""

    times: dict[str, Times]


@dataclass(frozen=True, slots=True)
class ProfileDone:
    """The profiles by variant."""

    profiled: dict[str, Profiled]


@dataclass(frozen=True, slots=True)
class Failed:
    """The child gave up, for a reason in one line.

    `bad_input` says that it is the user's, `not_applicable` that the variant has no part in this,
    `out_of_memory` that it was refused memory, `unbuilt` that building the problem took too long,
    for whichever variant. `output` is the last that it printed.
    """

    reason: str
    bad_input: bool = False
    not_applicable: bool = False
    out_of_memory: bool = False
    unbuilt: bool = False
    output: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """What was prepared has been closed: nothing more is to be waited for."""


Message = (
    Prepares
    | TurnBegins
    | CallEnded
    | TurnEnded
    | Reported
    | CheckDone
    | SamplingDone
    | ProfileDone
    | Failed
    | Closed
)
