"""The settings of a measurement: its limits, and when its timing stops."""

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from harness.model.machine import default_memory_gib

SETUP_SECONDS = 600.0


class SamplingRule(Struct, frozen=True):
    """When to stop: after `seconds`, or once every ratio is decided, within these block counts.

    A block is a turn of each variant and back in one process, or all that one process times, or
    one set of processes side by side. Two are timed even if they take longer, four where each is a
    process: fewer say too little. `precision` is the half-width of an interval, as a share of the
    ratio, that is small enough to stop at. `turn_seconds` is how long a turn lasts at least.
    `way` is for measuring the ways themselves. `counts_work` says whether the work of a call is
    counted as well, where that takes little of the time. With `once` each variant is called a
    single time, unobserved and with garbage collection on: that call is checked, and is its time.
    """

    seconds: float = 60.0
    least_blocks: int = 3
    most_blocks: int = 3000
    warmup_seconds: float = 5.0
    noise_floor: float = 0.03
    seed: int = 0
    precision: float = 0.05
    turn_seconds: float = 0.002
    way: Literal["best", "turns", "turns in one process", "side by side", "one core each"] = "best"
    counts_work: bool = True
    once: bool = False

    def quick(self) -> "SamplingRule":
        """Return the rule for a third of the time: wider intervals do, and no work is counted."""
        return replace(
            self,
            seconds=self.seconds / 3,
            warmup_seconds=self.warmup_seconds / 3,
            precision=3 * self.precision,
            counts_work=False,
        )

    def why_ended(self, blocks: int) -> str:
        """Return in words why the timing of an undecided ratio stopped after these blocks."""
        if self.once:
            return "each variant was called once"
        if blocks >= self.most_blocks:
            return f"{self.most_blocks} blocks are the most"
        return f"the {self.seconds:g} s for timing are spent"


class Settings(Struct, frozen=True):
    """The limits of a measurement, and how it is sampled.

    `budget` is the wall time in seconds that one call may take, `setup_budget` what each of the
    rest may: building the problem, setting a variant up, rating its decision. `memory_gib` is the
    resident memory that a variant's process may have, with all that it starts.
    """

    budget: float = 120.0
    sampling: SamplingRule = SamplingRule()
    setup_budget: float = SETUP_SECONDS
    memory_gib: float = field(default_factory=default_memory_gib)
