"""Variants: Paddle's resharding before and after its two changes, ours, and real releases."""

from pathlib import Path

from harness.contract import Claim, Prepared, ask_upstream
from planners.reshard.block import (
    DELTA_SYNC,
    INDEXED,
    SYNC_AFTER_REMOVE,
    SYNC_EACH,
    SYNC_ONCE,
    Block,
)
from planners.reshard.family import FAMILY
from planners.reshard.problem import ReshardProblem, prepare

_PART_1, _PART_2 = "PaddlePaddle/Paddle#59912", "PaddlePaddle/Paddle#60022"
_CLAIM_1 = Claim(
    12.932, 4.311, "s", "reshard() for 12 layers of LLaMA-2 7B on 4 GPUs, under cProfile"
)
_CLAIM_2 = Claim(4.184, 1.891, "s", "_reshard_input in the same run, under cProfile")
_DRIVER = Path(__file__).parent / "upstream" / "driver.py"
_BEFORE, _AFTER = "paddle-2.6.2", "paddle-3.3.1"


@FAMILY.variant("sync-each", source=f"before {_PART_1}", reference=True)
def sync_each(problem: ReshardProblem) -> Prepared[Block]:
    """Synchronise the whole block before every insertion and after every removal."""
    return prepare(problem, SYNC_EACH)


@FAMILY.variant("sync-after-remove", source=_PART_1, same_as="sync-each", claim=_CLAIM_1)
def sync_after_remove(problem: ReshardProblem) -> Prepared[Block]:
    """As sync-each, but synchronise once after a batch of removals."""
    return prepare(problem, SYNC_AFTER_REMOVE)


@FAMILY.variant("sync-once", source=_PART_2, same_as="sync-each", claim=_CLAIM_2)
def sync_once(problem: ReshardProblem) -> Prepared[Block]:
    """As sync-after-remove, and synchronise once after a batch of insertions too."""
    return prepare(problem, SYNC_ONCE)


@FAMILY.variant("delta-sync", source="shardbench", same_as="sync-each")
def delta_sync(problem: ReshardProblem) -> Prepared[Block]:
    """Keep a journal of the insertions, and check only the ops in it."""
    return prepare(problem, DELTA_SYNC)


@FAMILY.variant("indexed", source="shardbench", same_as="sync-each")
def indexed(problem: ReshardProblem) -> Prepared[Block]:
    """As delta-sync, and find ops and their readers without scans of the block."""
    return prepare(problem, INDEXED)


@FAMILY.variant(_BEFORE, source="Paddle 2.6.2", upstream=_BEFORE)
def before(problem: ReshardProblem) -> Prepared[Block]:
    """Paddle 2.6.2, the last release without #59912 and #60022."""
    return _asked(problem, _BEFORE, "as-shipped")


@FAMILY.variant(
    f"{_BEFORE}+part1", source=_PART_1, same_as=_BEFORE, upstream=_BEFORE, claim=_CLAIM_1
)
def part_1(problem: ReshardProblem) -> Prepared[Block]:
    """Paddle 2.6.2 with #59912 emulated: one sync after a batch of removed variables."""
    return _asked(problem, _BEFORE, "part1")


@FAMILY.variant(
    f"{_BEFORE}+part1+2", source=_PART_2, same_as=_BEFORE, upstream=_BEFORE, claim=_CLAIM_2
)
def part_1_and_2(problem: ReshardProblem) -> Prepared[Block]:
    """Paddle 2.6.2 with #59912 and #60022 emulated: one sync after a batch of new ops too."""
    return _asked(problem, _BEFORE, "part1+2")


@FAMILY.variant(_AFTER, source="Paddle 3.3.1", upstream=_AFTER)
def after(problem: ReshardProblem) -> Prepared[Block]:
    """Paddle 3.3.1, which has both changes, but its only caller switches #60022 off."""
    return _asked(problem, _AFTER, "as-shipped")


@FAMILY.variant(f"{_AFTER}-sync-once", source="Paddle 3.3.1", same_as=_AFTER, upstream=_AFTER)
def after_sync_once(problem: ReshardProblem) -> Prepared[Block]:
    """Paddle 3.3.1 with #60022 switched on."""
    return _asked(problem, _AFTER, "sync-once")


def _asked(problem: ReshardProblem, release: str, mode: str) -> Prepared[Block]:
    return ask_upstream(problem, release, _DRIVER, {"kind": "reshard", "mode": mode})
