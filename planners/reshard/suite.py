"""The reshard family's studies for reports, and its headline, claims and goals."""

from harness.contract import Pair, Statement, Study

LADDER = ("sync-each", "sync-after-remove", "sync-once", "delta-sync", "indexed")
INSERTING = ("sync-each", "sync-once", "delta-sync")
"""Those that differ where nothing is removed, and nothing searched for."""

_FOUR = "dgx_a100_80gb:4"
_MICRO = f"micro[ops=5000,inserts=200]/{_FOUR}"


def _layers(layers: int) -> str:
    return f"transformer[layers={layers}]/{_FOUR}"


PADDLE = (
    "paddle-2.6.2",
    "paddle-2.6.2+part1",
    "paddle-2.6.2+part1+2",
    "paddle-3.3.1",
    "paddle-3.3.1-sync-once",
)

STUDIES = (
    *(Study(_layers(layers), LADDER, "a stack of layers") for layers in (2, 4, 6)),
    *(Study(_layers(layers), LADDER, "a stack of layers", large=True) for layers in (16, 32, 64)),
    Study(f"micro/{_FOUR}", INSERTING, "insertions alone"),
    Study(_MICRO, INSERTING, "insertions alone", large=True),
    *(
        Study(f"{paddle}/{_FOUR}", PADDLE, "the real Paddle", against=PADDLE[0], large=large)
        for paddle, large in (("paddle[layers=2]", False), ("paddle[layers=12]", True))
    ),
)

_REAL = f"paddle[layers=12]/{_FOUR}"

STATEMENTS = (
    # Paddle 3.3.1 has both changes, and its only caller switches the second one off.
    Statement(
        "headline",
        "Paddle",
        _layers(32),
        "sync-after-remove",
        "indexed",
        quick=Pair(_layers(6), "sync-after-remove", "indexed"),
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
        quick=Pair(_layers(6), "sync-each", "sync-after-remove"),
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
        quick=Pair(_layers(6), "sync-after-remove", "sync-once"),
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
        _layers(32),
        "sync-each",
        "indexed",
        at_least=30,
    ),
)
