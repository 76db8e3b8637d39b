"""`shardbench plan` with the toy family: command lines, output, and written files."""

import json
from dataclasses import replace

import pytest
import toy_registries

from harness.contract import Abilities, Moving, Remedies, Remedy, UsageError, WorkloadSpec
from harness.contract.abilities import load
from harness.contract.registry import Registry
from harness.topologies.lookup import find_topology


@pytest.fixture
def plan(use_families, shardbench):
    use_families(toy_registries.bounded_registry)

    def run(*arguments: str, gpus: int = 8) -> tuple[int, str, str]:
        return shardbench("plan", "-t", "dgx_a100_80gb", "-n", str(gpus), *arguments)

    return run


def test_the_plan_is_written_and_shown(plan, tmp_path):
    """The output has the cell, its quality with the gap, and a row for each rank."""
    code, out, err = plan("--tables", "toy[size=12]", "-o", "mine.json")
    assert code == 0
    assert json.loads((tmp_path / "mine.json").read_text()) == {
        "gpu_of_item": [item % 8 for item in range(12)]
    }
    assert err.splitlines()[-1] == "Wrote mine.json"
    lines = out.splitlines()
    assert lines[0] == "toy/same@toy[size=12]/dgx_a100_80gb:8"
    assert lines[1] == "fullest 2 items, bound 1.5 items, gap 33.3 %"
    rows = [line.split() for line in lines if line[:4].strip().isdigit()]
    assert [row[0] for row in rows] == [str(rank) for rank in range(8)]
    assert rows[0][1:3] == ["2", "0.25"]


def test_of_many_ranks_the_heaviest_and_the_lightest_are_shown(plan):
    """More than 64 ranks are all shown on request alone."""
    problem = ("-w", "toy[size=200]")
    for options, rows in (((), 16), (("--all-ranks",), 72)):
        lines = plan(*problem, *options, gpus=72)[1].splitlines()
        ranks = [line.split()[:2] for line in lines if line[:4].strip().isdigit()]
        assert len(ranks) == rows
        if not options:
            assert (ranks[0], ranks[-1]) == (["0", "3"], ["71", "2"])
            assert max(map(len, lines)) <= 80


def test_a_variant_and_a_limit_can_be_asked_for(plan, tmp_path):
    """The variant of --variant plans, with the limit of --seconds."""
    code, out, _ = plan(
        "-w", f"toy[folder={tmp_path}]", "--family", "toy", "--variant", "own", "--seconds", "2"
    )
    assert code == 0
    assert "toy/own@" in out
    assert (tmp_path / "limit").read_text() == "2"


@pytest.mark.parametrize("variant", ["infeasible", "raises"])
def test_no_plan_leaves_the_file_alone(plan, tmp_path, variant):
    """Without a plan, the command says why and exits with 1."""
    (tmp_path / "plan.json").write_text("before")
    code, out, err = plan("--tables", "toy", "--variant", variant)
    assert (code, out, "Traceback" in err) == (1, "", False)
    assert (tmp_path / "plan.json").read_text() == "before"


@pytest.fixture
def plan_fixed(use_families, shardbench):
    """Plan with a variant that finds nothing, in a family that knows two changes."""
    (family,) = toy_registries.bounded_registry().families
    problem = family.work.build(WorkloadSpec.parse("toy[size=8]"), find_topology("dgx_h100", 8))
    decision = family.find("same").prepared(problem).run()
    changes = [
        Remedy("items", "", 6, amount, 7, (text,), 3.0, problem, decision, text)
        for amount, text in ((8, "Take 8 items."), (9, "Take 9 items."))
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
    assert json.loads(plan_fixed("--json")[1])["remedies"][1]["changes"] == ["Take 9 items."]
    assert not (tmp_path / "plan.json").exists()


def test_a_change_can_be_planned_with(plan_fixed, tmp_path):
    """With --fix N, the plan of change N is written, and the change is printed."""
    code, out, err = plan_fixed("--fix", "2")
    assert (code, "Take 9 items." in err, "Take 8 items." in out + err) == (0, True, False)
    assert "gpu_of_item" in json.loads((tmp_path / "plan.json").read_text())
    assert json.loads(plan_fixed("--fix", "1", "--json", "-")[1])["changes"] == ["Take 8 items."]
    assert plan_fixed("--fix", "3")[0] == 2


def test_the_plan_of_today_is_compared_and_an_interrupt_keeps_the_plan(
    plan, use_families, monkeypatch, tmp_path
):
    """The family names a planner, which makes the decision of variant `same`."""
    (family,) = toy_registries.bounded_registry().families
    planning = replace(family.abilities.planning, baseline=lambda problem: ("TorchToy", "same"))
    use_families(lambda: Registry([replace(family, abilities=Abilities(planning=planning))]))
    code, out, _ = plan("--tables", "toy", "--variant", "own", gpus=2)
    assert code == 0
    assert "TorchToy's own plan: 3 items; this plan: 6 items." in out

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shardbench.commands.plan.baseline", interrupted)
    code, out, _ = plan("--tables", "toy", "-o", "kept.json")
    assert (code, "fullest" in out) == (130, True)
    assert (tmp_path / "kept.json").exists()


@pytest.fixture
def moving(plan, use_families, tmp_path):
    """The toy family with moves: an item moves 1 GiB if old.json has it on another GPU."""
    (tmp_path / "old.json").write_text(json.dumps({"gpu_of_item": [0] * 6}))
    (family,) = toy_registries.bounded_registry().families
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
    abilities = replace(family.abilities, planning=planning)
    use_families(lambda: Registry([replace(family, abilities=abilities)]))


def test_what_a_plan_moves_is_said_and_so_is_more_than_was_allowed(plan, moving):
    """A plan that moves more than --move-gib comes with a warning."""
    for gib, is_warned in (("9", False), ("2.5", True)):
        code, out, err = plan("--tables", "toy", "--from", "old.json", "--move-gib", gib)
        assert (code, "moves 5 GiB\n" in out, "at most 2.5 GiB" in err) == (0, True, is_warned)


def test_a_front_is_written_plan_by_plan_with_a_table_and_a_figure(plan, moving, tmp_path):
    """Plans that move more and more are files of one folder."""
    code, out, _ = plan("--tables", "toy", "--from", "old.json", "--pareto", "front")
    assert code == 0
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith("plan-")]
    assert rows == [["plan-1.json", "0", "6"], ["plan-2.json", "3", "3"], ["plan-3.json", "6", "1"]]
    folder = tmp_path / "front"
    assert json.loads((folder / "plan-2.json").read_text()) == {"gpu_of_item": [0, 0, 0, 4, 5, 6]}
    table = (folder / "front.csv").read_text().splitlines()
    assert table[0] == "plan,GiB moved,fullest,least,gap"
    assert table[2].startswith("plan-2.json,3.0,3,")
    assert "<svg" in (folder / "front.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("-o none/plan.json", "none is not a folder"),
        ("--variant sane", "did you mean same?"),
        ("-w toy[size=0]", "not '0'"),
        ("--move-gib 1", "need --from"),
        ("--from old.json --move-gib -1", "-1"),
        ("--from old.json --lost-ranks 8-3", "not '8-3'"),
        ("--from old.json --lost-ranks 1,,2", "not '1,,2'"),
        ("--from old.json --pareto f --move-gib 1", "no --move-gib"),
        ("--from old.json --variant own", "Only 'same'"),
        ("--from none.json", "no such file"),
    ],
)
def test_bad_input_is_refused_before_anything_is_planned(plan, moving, arguments, sentence):
    """Every refusal is one sentence, with exit code 2."""
    code, out, err = plan("--tables", "toy", *arguments.split())
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]
