"""Declare the reshard family: its qualities, counters, studies, headline, claims and goals."""

from harness.contract import Abilities, Counter, Family, Pair, Quality, Statement, Study
from planners.reshard.block import Block
from planners.reshard.problem import ReshardProblem
from planners.reshard.workloads import WORKLOADS, label

LADDER = ("sync-each", "sync-after-remove", "sync-once", "delta-sync", "indexed")
INSERTING = ("sync-each", "sync-once", "delta-sync")
"""Those that differ where nothing is removed, and nothing searched for."""
PADDLE = (
    *("paddle-2.6.2", "paddle-2.6.2+part1", "paddle-2.6.2+part1+2"),
    *("paddle-3.3.1", "paddle-3.3.1-sync-once"),
)

_FOUR = "dgx_a100_80gb:4"
_MICRO = f"micro[ops=5000,inserts=200]/{_FOUR}"
_SMALL, _LARGE = (f"transformer[layers={layers}]/{_FOUR}" for layers in (6, 32))
_REAL = f"paddle[layers=12]/{_FOUR}"

_STUDIES = (
    *(
        Study(f"transformer[layers={layers}]/{_FOUR}", LADDER, "a stack of layers", large=large)
        for layers, large in (
            *((2, False), (4, False), (6, False)),
            *((16, True), (32, True), (64, True)),
        )
    ),
    Study(f"micro/{_FOUR}", INSERTING, "insertions alone"),
    Study(_MICRO, INSERTING, "insertions alone", large=True),
    Study(f"paddle[layers=2]/{_FOUR}", PADDLE, "the real Paddle", against=PADDLE[0]),
    Study(_REAL, PADDLE, "the real Paddle", against=PADDLE[0], large=True),
)

_STATEMENTS = (
    # Paddle 3.3.1 has both changes, and its only caller switches the second one off.
    Statement(
        "headline",
        "Paddle",
        _LARGE,
        "sync-after-remove",
        "indexed",
        quick=Pair(_SMALL, "sync-after-remove", "indexed"),
        claim="Paddle #60022",
        counter="syncs",
        counted=(Pair(_REAL, "paddle-3.3.1", ""),),
        before_is="a stand-in: Paddle 3.3.1's method on a graph of our own",
        next_step="no drop-in; `indexed` is a proposal to its maintainers",
        remark="Ours runs on a graph of our own, so it is compared with Paddle's method of today "
        "on that graph.",
    ),
    Statement(
        "claim",
        "Paddle #59912",
        _REAL,
        "paddle-2.6.2",
        "paddle-2.6.2+part1",
        quick=Pair(_SMALL, "sync-each", "sync-after-remove"),
        counter="syncs",
        remark="The pull request also gives the time until the first step, which includes this "
        "pass: 32.8 s before, 23.9 s after, and 18.9 s after #60022.",
    ),
    Statement(
        "claim",
        "Paddle #60022",
        _REAL,
        "paddle-2.6.2+part1",
        "paddle-2.6.2+part1+2",
        quick=Pair(_SMALL, "sync-after-remove", "sync-once"),
        counter="syncs",
    ),
    Statement(
        "goal",
        "200 insertions into 5000 ops at least 300 times as fast",
        _MICRO,
        "sync-each",
        "delta-sync",
        at_least=300,
    ),
    Statement(
        "goal",
        "a stack of 32 layers at least 30 times as fast",
        _LARGE,
        "sync-each",
        "indexed",
        at_least=30,
    ),
)

FAMILY: Family[ReshardProblem, Block] = Family(
    name="reshard",
    summary="communication for a program: Paddle's static auto-parallel reshard",
    implementation="planners.reshard.problem",
    label=label,
    qualities=(
        Quality(
            "moved_mib", "MiB", "lower", "MiB that a rank sends, receives, gathers and reduces"
        ),
        Quality("inserted_ops", "", "lower", "ops that were inserted and stayed"),
    ),
    counters=(
        Counter("syncs", "syncs of the whole block", sufficient="batches"),
        Counter("batches", "batches of insertions or removals"),
        Counter("ops_visited", "ops that a synchronisation looked at", "edits"),
        Counter("edits", "ops that were inserted or removed"),
        Counter("values_visited", "values that a synchronisation looked at"),
        Counter("inserts", "ops that were inserted"),
        Counter("removals", "ops that were removed"),
        Counter("parses", "inputs that were resharded"),
        Counter("crossed_bytes", "bytes of names and attributes that crossed to C++ or back"),
    ),
    phases=("syncing", "searching", "inserting", "removing", "other"),
    workloads=lambda: WORKLOADS,
    requires=("torch",),
    preload=("torch",),
    benchmarks=("transformer/dgx_a100_80gb:4",),
    abilities=Abilities(inventory="planners.reshard.problem:inventory"),
    studies=_STUDIES,
    statements=_STATEMENTS,
    place=40,
)
