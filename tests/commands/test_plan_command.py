"""`shardbench plan` with the toy family: command lines, output, and written files."""

import json
import re
from dataclasses import replace

import pytest
import toy
from rich.console import Console

from harness.contract import (
    Abilities,
    Moving,
    Remedies,
    Remedy,
    UsageError,
    WorkloadSpec,
)
from harness.contract.abilities import load
from harness.contract.registry import Registry
from harness.model.cell import RankTable
from harness.model.ids import CellId
from harness.model.quality import Quality, find_bound
from harness.planning.plan import Planned
from harness.topologies.lookup import find_topology
from shardbench.display import plan as display


@pytest.fixture
def plan(use_families, shardbench):
    use_families(toy.bounded_registry)

    def run(*arguments: str, gpus: int = 8) -> tuple[int, str, str]:
        return shardbench("plan", "-t", "dgx_a100_80gb", "-n", str(gpus), *arguments)

    return run


def test_the_plan_is_written_and_shown(plan, tmp_path):
    code, out, err = plan("--tables", "toy[size=12]", "-o", "mine.json")
    assert code == 0
    assert json.loads((tmp_path / "mine.json").read_text()) == {
        "gpu_of_item": [item % 8 for item in range(12)]
    }
    assert err.splitlines() == [
        "building the problem", "planning with same", "rating the plan", "Wrote mine.json"
    ]  # fmt: skip
    lines = out.splitlines()
    assert lines[0] == "toy/same@toy[size=12]/dgx_a100_80gb:8"
    assert lines[1] == "fullest 2 items, bound 1.5 items, gap 33.3 %"
    rows = [line.split() for line in lines if line[:4].strip().isdigit()]
    assert [row[0] for row in rows] == [str(rank) for rank in range(8)]
    assert rows[0][1:3] == ["2", "0.25"]
    assert "of 80" in out


def test_a_variant_and_a_limit_can_be_asked_for(plan, tmp_path):
    """The variant of --variant plans, with the limit of --seconds."""
    code, out, _ = plan(
        "-w", f"toy[folder={tmp_path}]", "--family", "toy", "--variant", "own", "--seconds", "2"
    )
    assert code == 0
    assert "toy/own@" in out
    assert (tmp_path / "limit").read_text() == "2"


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        ("infeasible", "(8, 8, 8, 8, 8, 8) does not deal 6 items out."),
        ("raises", "'raises' found no decision: ValueError: no item likes me"),
    ],
)
def test_no_plan_is_one_sentence_and_leaves_the_file_alone(plan, tmp_path, variant, sentence):
    """Without a plan, the command says why and exits with 1."""
    (tmp_path / "plan.json").write_text("before")
    code, out, err = plan("--tables", "toy", "--variant", variant)
    assert (code, out, err.splitlines()[-1]) == (1, "", sentence)
    assert (tmp_path / "plan.json").read_text() == "before"


@pytest.fixture
def plan_fixed(use_families, shardbench):
    """Plan with a variant that finds nothing, in a family that knows two changes."""
    (family,) = toy.bounded_registry().families
    problem = family.work.build(WorkloadSpec.parse("toy[size=8]"), find_topology("dgx_h100", 8))
    decision = family.find("same").prepared(problem).run()
    changes = [
        Remedy("items", "", 6, amount, 7, (f"Take {amount} items.",), 3.0, problem, decision)
        for amount in (8, 9)
    ]
    planning = replace(
        load(family.abilities.planning),
        variant="infeasible",
        remedies=lambda problem, seconds: Remedies(("Item 5 fits nowhere.",), (), (*changes,)),
    )
    other = replace(family, abilities=Abilities(planning=planning), statements=())
    use_families(lambda: Registry([other]))

    def run(*arguments: str) -> tuple[int, str, str]:
        return shardbench("plan", "-t", "dgx_a100_80gb", "-n", "8", "--tables", "toy", *arguments)

    return run


def test_no_plan_has_causes_and_numbered_remedies(plan_fixed, tmp_path):
    """Without a plan, the output has what fits nowhere, then each change with its number."""
    code, out, _ = plan_fixed()
    assert code == 1
    assert out.index("Item 5") < out.index("1. Take 8 items.") < out.index("2. Take 9 items.")
    assert "less than 7 is proven" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert not (tmp_path / "plan.json").exists()


def test_a_change_can_be_planned_with(plan_fixed, tmp_path):
    """With --fix N, the plan of change N is written, and the change is printed."""
    code, out, err = plan_fixed("--fix", "2")
    assert code == 0
    assert "Take 9 items." in err
    assert "Take 8 items." not in out + err
    assert "gpu_of_item" in json.loads((tmp_path / "plan.json").read_text())
    code, out, _ = plan_fixed("--fix", "1", "--json", "-")
    assert code == 0
    assert json.loads(out)["changes"] == ["Take 8 items."]
    assert plan_fixed("--fix", "3")[0] == 2


def test_several_families_that_can_plan_have_to_be_told_apart(plan, use_families):
    """Without --family, a single family must be able to plan the workload."""
    (family,) = toy.bounded_registry().families
    other = replace(family, name="other", studies=(), statements=())
    use_families(lambda: Registry([family, other]))
    code, _, err = plan("--tables", "toy")
    assert code == 2
    assert err.strip() == "Name a family with --family; those that can plan are: other, toy."
    use_families(toy.toy_registry)
    assert plan("--tables", "toy")[2].strip().endswith("those that can plan are: none.")


@pytest.fixture
def released(plan, use_families):
    """Let the family name a planner, which makes the decision of variant `same`."""
    (family,) = toy.bounded_registry().families
    planning = replace(family.abilities.planning, baseline=lambda problem: ("TorchToy", "same"))
    use_families(lambda: Registry([replace(family, abilities=Abilities(planning=planning))]))


def test_what_it_gains_is_said_and_how_long_it_all_took(plan, released):
    """The plan is compared with the release's own one."""
    code, out, err = plan("--tables", "toy", "--variant", "own", gpus=2)
    assert code == 0
    *_, gain, took = out.splitlines()
    assert gain == "TorchToy's own plan: 3 items; this plan: 6 items."
    assert re.fullmatch(r"Planned in .+; the whole command took .+\.", took)
    assert err.splitlines()[-2:] == ["Wrote plan.json", "planning with same"]


def test_an_interrupt_after_planning_keeps_the_plan(plan, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shardbench.commands.plan.baseline", interrupted)
    code, out, err = plan("--tables", "toy")
    assert code == 130
    assert err.splitlines()[-1] == "Interrupted: the plan is kept in plan.json."
    assert "fullest" in out
    assert (tmp_path / "plan.json").exists()


def moving_registry():
    """Return the toy family with moves: an item moves 1 GiB if the file has it on another GPU."""
    (family,) = toy.bounded_registry().families
    before = {}

    def within(problem, path, gib, lost):
        if not path.exists():
            raise UsageError(f"{path} cannot be read: there is no such file.")
        before.update(gpus=json.loads(path.read_text())["gpu_of_item"], lost=lost)
        return problem

    def moved(problem, decision):
        return float(sum(one != two for one, two in zip(before["gpus"], decision, strict=True)))

    def front(problem):
        for count in (0, 3, 6):
            yield problem, (0,) * (6 - count) + (1, 2, 3, 4, 5, 6)[6 - count :]

    planning = replace(family.abilities.planning, moving=Moving(within, moved, front))
    return Registry([replace(family, abilities=replace(family.abilities, planning=planning))])


@pytest.fixture
def old(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({"gpu_of_item": [0] * 6}))


@pytest.fixture
def moving(plan, use_families):
    use_families(moving_registry)


def test_what_a_plan_moves_is_said_and_so_is_more_than_was_allowed(plan, moving, old):
    code, out, err = plan("--tables", "toy", "--from", "old.json", "--move-gib", "9")
    assert code == 0
    assert ", moves 5 GiB\n" in out
    assert "No plan" not in err
    code, out, err = plan("--tables", "toy", "--from", "old.json", "--move-gib", "2.5")
    assert code == 0
    assert (
        "No plan was found that moves at most 2.5 GiB; this one moves 5 GiB, the least that was "
        "found." in err
    )


def test_a_front_is_written_plan_by_plan_with_a_table_and_a_figure(plan, moving, old, tmp_path):
    code, out, err = plan("--tables", "toy", "--from", "old.json", "--pareto", "front")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith("plan-")]
    assert [row[:3] for row in rows] == [
        ["plan-1.json", "0", "6"],
        ["plan-2.json", "3", "3"],
        ["plan-3.json", "6", "1"],
    ]
    assert "Wrote 3 plans, front.csv and front.svg into front" in err
    folder = tmp_path / "front"
    assert json.loads((folder / "plan-2.json").read_text()) == {"gpu_of_item": [0, 0, 0, 4, 5, 6]}
    table = (folder / "front.csv").read_text().splitlines()
    assert table[0] == "plan,GiB moved,fullest,least,gap"
    assert table[2].startswith("plan-2.json,3.0,3,")
    assert "<svg" in (folder / "front.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-o none/plan.json", "none/plan.json cannot be written: none is not a folder."),
        ("--variant sane", "Unknown variant of family 'toy', 'sane'; did you mean same?"),
        ("-w toy[size=0]", "must be a whole number of at least 1, not '0'."),
        ("--move-gib 1", "need --from, the plan that tables are placed by now."),
        ("--from old.json --move-gib -1", "-1 is not a number of at least 0"),
        ("--from old.json --lost-ranks 8-3", "must be like 8-15,20, not '8-3'."),
        ("--from old.json --lost-ranks 1,,2", "must be like 8-15,20, not '1,,2'."),
        ("--from old.json --pareto f --move-gib 1", "no --move-gib"),
        ("--from old.json --variant own", "Only 'same' stays near another decision."),
        ("--from none.json", "none.json cannot be read: there is no such file."),
    ],
)
def test_bad_input_is_refused_before_anything_is_planned(plan, moving, old, arguments, sentence):
    """Every refusal is one sentence, with exit code 2."""
    code, out, err = plan("--tables", "toy", *arguments.split())
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]


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
