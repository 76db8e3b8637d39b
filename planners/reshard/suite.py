"""The studies and goals of the reshard family, and its row in the README's figure."""

from harness.contract import Goal, OverviewRow, Study

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

GOALS = (
    Goal.times_faster("200 insertions into 5000 ops", _MICRO, "delta-sync", 300),
    Goal.times_faster("a stack of 32 layers", _layers(32), "indexed", 30),
)

OVERVIEW = (
    # Paddle 3.3.1 has both changes, and its only caller switches the second one off.
    OverviewRow(
        "Paddle",
        problem=_layers(6),
        today="sync-after-remove",
        ours="indexed",
        place=40,
        published="sync-once",
        counter="syncs",
        today_is="a stand-in: Paddle 3.3.1's method on a graph of our own",
        next_step="Paddle: there is no drop-in; `indexed` is a proposal to its maintainers.",
    ),
)
