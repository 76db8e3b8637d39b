"""`shardbench profile`, which takes the same cell id as measuring and comparing."""

import json

import pytest

from harness.contract.registry import load_registry
from shardbench.problem_options import find_problem

# A family that needs no library, for what does not depend on which it is.
QUICK_ID = "random[conversions=5]/dgx_a100_80gb:8"
QUICK_STEM = "random-conversions=5-dgx_a100_80gb-8"
ID = "synthetic[tables=2,seed=1]/dgx_a100_80gb:8"


def test_two_variants_by_one_id(shardbench, tmp_path):
    code, out, err = shardbench(
        "profile", f"dimspec/eager-dict@{QUICK_ID}", "--against", "path-cache", "--seconds", "0.05"
    )
    assert code == 0, err
    assert "GreedySearch.convert" in out, "the planner's frames are what is profiled"
    trees = [line for line in out.splitlines() if line.endswith(" per call")]
    assert [line.partition(",")[0] for line in trees] == [
        "dimspec/eager-dict", "dimspec/path-cache"
    ]  # fmt: skip
    assert "profiling made a call" in out
    told = ("per call in eager-dict and", "the noise between eager-dict and path-cache.")
    assert any(each in out.replace("\n", " ") for each in told), "as far as the machine resolves it"
    files = {path.name for path in (tmp_path / "profiles").iterdir()}
    assert files == {
        *(
            f"dimspec-{variant}-{QUICK_STEM}.{suffix}"
            for variant in ("eager-dict", "path-cache")
            for suffix in ("html", "speedscope.json", "txt")
        ),
        f"dimspec-eager-dict-against-path-cache-{QUICK_STEM}.flames.html",
    }
    assert err.count("Wrote") == len(files)
    for path in (tmp_path / "profiles").iterdir():
        assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_one_variant_as_asv_prints_it(shardbench, tmp_path):
    benchmark = f"families.dimspec.time_plan('path-cache', '{QUICK_ID}')"
    code, out, err = shardbench("profile", benchmark, "--out", "here", "--seconds", "0.05")
    assert code == 0, err
    assert "itself took" in out
    files = sorted(path.name for path in (tmp_path / "here").iterdir())
    stem = f"dimspec-path-cache-{QUICK_STEM}"
    assert files == [f"{stem}.{end}" for end in ("flames.html", "html", "speedscope.json", "txt")]
    assert out.startswith("dimspec/path-cache, ")
    assert max(map(len, out.splitlines())) <= 80


def test_a_comparison_by_one_id(shardbench):
    code, out, err = shardbench(
        "compare", f"dimspec/path-cache@{QUICK_ID}", "--seconds", "0.1", "--json", "-"
    )
    assert code == 0, err
    cells = json.loads(out)["rows"]
    assert [cell["variant"] for cell in cells] == ["eager-dict", "path-cache"]


class TestAsked:
    def ask(self, name: str, *problem):
        workload, topology, gpus = problem or (None, None, None)
        return find_problem(load_registry(), name, workload, topology, gpus)

    @pytest.mark.parametrize(
        "name",
        [
            f"embedding/compiled@{ID}",
            f" embedding/compiled@{ID} ",
            f"families.embedding.time_plan('compiled', '{ID}')",
            f"benchmarks.families.embedding.track_max_rank_ms('compiled', '{ID}')",
            f'families.embedding.time_plan("compiled", "{ID}")',
        ],
    )
    def test_all_ways_of_naming_a_cell_mean_the_same(self, name: str):
        by_id = self.ask(name)
        by_options = self.ask(
            "embedding/compiled", "synthetic[tables=2,seed=1]", "dgx_a100_80gb", 8
        )
        assert by_id == by_options
        assert by_id.variants == ("compiled",)

    def test_a_problem_of_a_family_names_no_variant(self):
        assert self.ask(f"embedding@{ID}").variants == ()

    def test_a_file_is_found_by_the_name_that_results_give_it(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.csv").write_text("rows,dim,pooling_factor\n1000,8,1\n")
        family = load_registry().find("embedding")
        given = self.ask("embedding", "mine.csv", "dgx_h100", 8).workload
        label = family.label(given)
        assert str(label) != "mine.csv"
        assert self.ask(f"embedding@{label}/dgx_h100:8").workload == given
        (tmp_path / "mine.csv").write_text("rows,dim,pooling_factor\n2000,8,1\n")
        with pytest.raises(Exception, match=r"^mine.csv has changed"):
            self.ask(f"embedding@{label}/dgx_h100:8")
