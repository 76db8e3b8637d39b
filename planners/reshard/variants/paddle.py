"""Variants that run real Paddle releases in child processes, with and without two changes."""

from pathlib import Path

from harness.contract import Prepared, ask_upstream
from planners.reshard.family import FAMILY
from planners.reshard.problem import ReshardProblem
from planners.reshard.resharding.resharder import Resharded
from planners.reshard.variants.resharders import CLAIMS

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_BEFORE = "paddle-2.6.2"
_AFTER = "paddle-3.3.1"


@FAMILY.variant(_BEFORE, source="Paddle 2.6.2", upstream=_BEFORE)
def before(problem: ReshardProblem) -> Prepared[Resharded]:
    """Paddle 2.6.2, the last release without #59912 and #60022."""
    return _asked(problem, _BEFORE, "as-shipped")


@FAMILY.variant(
    f"{_BEFORE}+part1",
    source="PaddlePaddle/Paddle#59912",
    same_as=_BEFORE,
    upstream=_BEFORE,
    claim=CLAIMS[0],
)
def part1(problem: ReshardProblem) -> Prepared[Resharded]:
    """Paddle 2.6.2 with #59912 emulated: one sync after a batch of removed variables."""
    return _asked(problem, _BEFORE, "part1")


@FAMILY.variant(
    f"{_BEFORE}+part1+2",
    source="PaddlePaddle/Paddle#60022",
    same_as=_BEFORE,
    upstream=_BEFORE,
    claim=CLAIMS[1],
)
def part1_and_2(problem: ReshardProblem) -> Prepared[Resharded]:
    """Paddle 2.6.2 with #59912 and #60022 emulated: one sync after a batch of new ops too."""
    return _asked(problem, _BEFORE, "part1+2")


@FAMILY.variant(_AFTER, source="Paddle 3.3.1", upstream=_AFTER)
def after(problem: ReshardProblem) -> Prepared[Resharded]:
    """Paddle 3.3.1, which has both changes, but its only caller switches #60022 off."""
    return _asked(problem, _AFTER, "as-shipped")


@FAMILY.variant(f"{_AFTER}-sync-once", source="Paddle 3.3.1", same_as=_AFTER, upstream=_AFTER)
def after_sync_once(problem: ReshardProblem) -> Prepared[Resharded]:
    """Paddle 3.3.1 with #60022 switched on."""
    return _asked(problem, _AFTER, "sync-once")


def _asked(problem: ReshardProblem, release: str, mode: str) -> Prepared[Resharded]:
    return ask_upstream(problem, release, _DRIVER, {"kind": "reshard", "mode": mode})
