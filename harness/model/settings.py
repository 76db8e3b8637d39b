"""The settings of a measurement: its limits, and the rule that ends the timing."""

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from harness.model.machine import default_memory_gib

SETUP_SECONDS = 600.0

# Where calls are not repeated until there is a verdict, one that takes this long is made once only.
LONG_CALL_S = 300.0


class SamplingRule(Struct, frozen=True):
    """The rule that ends the timing: after `seconds`, or as soon as every ratio has a verdict.

    The number of blocks is at least `least_blocks` and at most `most_blocks`. A block times each
    variant in an order and its reverse, or is one forked process, or one group of processes side by
    side. Two blocks are timed even if they exceed `seconds`, or four if each is a process.
    `precision` is the half-width of the interval, as a share of the ratio, that suffices to stop.
    `turn_seconds` is the minimum duration of a timing sample; shorter calls are repeated. `way`
    forces a timing method, to compare the methods; `one core each` is of earlier versions.
    `counts_work` also counts the work of a call, if that takes little time. With `once` the call
    that is checked gives the time, unobserved and with garbage collection on; it is made twice if
    it takes less than `LONG_CALL_S`.
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
        """Return a rule for a third of the time, with wider intervals and without counted work."""
        return replace(
            self,
            seconds=self.seconds / 3,
            warmup_seconds=self.warmup_seconds / 3,
            precision=3 * self.precision,
            counts_work=False,
        )

    def why_ended(self, blocks: int) -> str:
        """Return the limit that ended the timing of a ratio without a verdict, as report text."""
        if self.once:
            return "each variant was called once or twice"
        if blocks >= self.most_blocks:
            return f"{self.most_blocks} blocks are the most"
        return f"the {self.seconds:g} s for timing are spent"


class Settings(Struct, frozen=True):
    """The limits of a measurement, and its sampling rule.

    `budget` is the wall time limit of one call in seconds; `setup_budget` is the limit of every
    other stage: building the problem, setting up a variant, rating its decision. `memory_gib`
    limits the resident memory of a variant's process and the processes that it starts.
    """

    budget: float = 120.0
    sampling: SamplingRule = SamplingRule()
    setup_budget: float = SETUP_SECONDS
    memory_gib: float = field(default_factory=default_memory_gib)
