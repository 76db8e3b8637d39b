"""`shardbench profile`: ways to name a cell, files, and the tree of calls."""

import io
import json

import pytest
from rich.console import Console

from harness.contract.registry import load_registry
from harness.measuring.profile.flame_graph import Frame, Profile, Stack, Weight
from harness.measuring.request import Request
from harness.model.errors import UsageError
from shardbench.commands.profile import shown
from shardbench.problems import find_problem

# A family that needs no library, for what does not depend on which it is.
QUICK_ID = "random[conversions=5]/dgx_a100_80gb:8"
QUICK_STEM = "random-conversions=5-dgx_a100_80gb-8"
ID = "synthetic[tables=2,seed=1]/dgx_a100_80gb:8"


def test_two_variants_by_one_id(shardbench, tmp_path):
    """Each variant has a tree and files, and a page has both."""
    code, out, err = shardbench(
        "profile", f"dimspec/eager-dict@{QUICK_ID}", "--against", "path-cache", "--seconds", "0.05"
    )
    assert code == 0, err
    assert "GreedySearch.convert" in out, "the planner's frames are what is profiled"
    trees = [line.partition(",")[0] for line in out.splitlines() if line.endswith(" per call")]
    assert trees == ["dimspec/eager-dict", "dimspec/path-cache"]
    assert max(map(len, out.splitlines())) <= 80
    files = {path.name: path.read_text() for path in (tmp_path / "profiles").iterdir()}
    assert files.keys() == {
        f"dimspec-eager-dict-{QUICK_STEM}.speedscope.json",
        f"dimspec-path-cache-{QUICK_STEM}.speedscope.json",
        f"dimspec-eager-dict-against-path-cache-{QUICK_STEM}.flames.html",
    }
    assert err.count("Wrote") == len(files)
    profile = json.loads(files[f"dimspec-path-cache-{QUICK_STEM}.speedscope.json"])
    (sampled,) = profile["profiles"]
    assert len(sampled["samples"]) == len(sampled["weights"])
    assert max(map(max, sampled["samples"])) < len(profile["shared"]["frames"])


def asked(name: str, *problem) -> Request:
    workload, topology, gpus = problem or (None, None, None)
    return find_problem(load_registry(), name, workload, topology, gpus)


@pytest.mark.parametrize(
    "name",
    [
        f" embedding/compiled@{ID} ",
        f"families.embedding.time_plan('compiled', '{ID}')",
        f'benchmarks.families.embedding.track_max_rank_ms("compiled", "{ID}")',
    ],
)
def test_all_ways_of_naming_a_cell_mean_the_same(name):
    """An id, a benchmark as asv prints it, and options."""
    by_id = asked(name)
    assert by_id == asked("embedding/compiled", "synthetic[tables=2,seed=1]", "dgx_a100_80gb", 8)
    assert by_id.variants == ("compiled",)
    assert asked(f"embedding@{ID}").variants == ()


def test_a_file_is_named_as_results_name_it(tmp_path, monkeypatch):
    """The hash in the name tells whether the file has changed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("rows,dim,pooling_factor\n1000,8,1\n")
    given = asked("embedding", "mine.csv", "dgx_h100", 8).workload
    label = load_registry().find("embedding").label(given)
    assert str(label) != "mine.csv"
    assert asked(f"embedding@{label}/dgx_h100:8").workload == given
    (tmp_path / "mine.csv").write_text("rows,dim,pooling_factor\n2000,8,1\n")
    with pytest.raises(UsageError, match=r"^mine.csv has changed"):
        asked(f"embedding@{label}/dgx_h100:8")


PLAN = Frame("lib.planner.planners", "Planner.plan")
COPY = Frame("copy", "deepcopy")


def lines(stacks: dict[Stack, float], variant: str = "upstream") -> list[str]:
    weights = {stack: Weight(seconds, seconds * 0.001) for stack, seconds in stacks.items()}
    profile = Profile("toy", variant, weights, calls=4, unprofiled_s=1.0)
    console = Console(width=80, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    console.print(shown([profile]))
    return console.file.getvalue().splitlines()


def test_any_depth_and_any_name_fit_80_columns():
    """Long names are wrapped, deeper calls are marked, and control characters are escaped."""
    deep = Frame("lib.module", "Class." + "f" * 90)
    stacks = {(deep,) * n: 0.1 for n in range(1, 60)} | {
        (deep,) * n + (COPY,): 1.0 for n in range(60)
    }
    tree = lines(stacks, "\x1b[2J")
    assert max(map(len, tree)) <= 80
    assert "\x1b" not in "".join(tree)
    assert any(line.strip(" │├└─") == "…" for line in tree)
    assert "f" * 90 in "".join(line.strip(" │├└─") for line in tree)
