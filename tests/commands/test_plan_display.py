"""A plan as `shardbench plan` shows it."""

from rich.console import Console

from harness.model.cell import RankTable
from harness.model.ids import CellId
from harness.model.quality import Quality, find_bound
from harness.planning.plan import Planned
from shardbench.display import plan as display


def shown(amount: int, all_ranks: bool = False) -> list[str]:
    """Return the lines shown in 80 columns for a plan on `amount` ranks; rank 5 is the heaviest."""
    qualities = [
        Quality("max_rank_ms", "ms", "lower", ""),
        Quality("bound_ms", "ms", "higher", "", bounds="max_rank_ms"),
    ]
    rows = tuple((1234.5 if rank == 5 else 1000.0 - rank, 71.25, 1024.0) for rank in range(amount))
    columns = ("ms", "HBM GiB", "DDR GiB")
    made = Planned(
        cell=CellId.parse("boxing/certified@crates[boxes=12]/dgx_h100:64"),
        document={},
        ranks=RankTable(columns, rows, (None, 80.0, 2048.0), "ms"),
        quality={"max_rank_ms": 1234.5, "bound_ms": 1234.0},
        first=qualities[0],
        bound=find_bound(qualities),
        planning_s=8.214,
    )
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(display.shown(made, all_ranks))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert max(map(len, lines)) <= 80
    return lines


def test_up_to_64_ranks_are_all_shown_with_bars():
    """The headline has bound and gap, and bars are as long as the figures."""
    lines = shown(64)
    assert lines[1] == "max_rank_ms 1,234.5, bound 1,234, gap 0.041 %"
    assert [line.split()[0] for line in lines[-64:]] == [str(rank) for rank in range(64)]
    lengths = [line.count("█") for line in lines[-64:]]
    assert lengths.index(max(lengths)) == 5
    assert 0.75 < lengths[0] / lengths[5] < 0.85


def test_of_more_ranks_the_heaviest_and_the_lightest_are_shown():
    """The others are one row of medians, unless all ranks are asked for."""
    lines = shown(200)
    rows = [line.split() for line in lines[-17:]]
    assert [row[0] for row in rows[:8]] == ["5", "0", "1", "2", "3", "4", "6", "7"]
    assert rows[8][:4] == ["...", "900.5", "71.25", "1,024"]
    assert " ".join(rows[8]).endswith("184 ranks between: medians")
    assert [row[0] for row in rows[9:]] == [str(rank) for rank in range(192, 200)]
    assert len(shown(200, all_ranks=True)) == len(shown(64)) + 136
