"""The driver that measures torchrec's releases agrees with the family on the installed release."""

from pathlib import Path

import pytest
from msgspec import to_builtins

from harness.contract import Recorder, Upstream
from harness.contract.abilities import load
from harness.model.ids import ProblemId
from harness.series import driving
from harness.series.installing import installed_place
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY

pytestmark = pytest.mark.long

PROBLEMS = (
    "dlrm-856[tables=4,seed=1]/dgx_a100_80gb:8",
    "synthetic[tables=6,seed=7,memory=tight]/dgx_h100:16",
    "dlrm-856[tables=3,seed=2,memory=roomy]/gb200_nvl72_tray4:72",
    "lookups.csv/dgx_h100:16",
)
LOOKUPS = (
    "rows,dim,pooling_factor,lookup\n"
    "2e6,64,20,sequence\n3e5,128,50,sequence\n5e6,64,9,weighted\n4e6,32,9,pooled\n"
)
SERIES = load(FAMILY.abilities.series)
INSTALLED = installed_place("torchrec")
RELEASES = sorted((Path(__file__).parents[2] / "upstreams" / "releases").glob("torchrec-*"))


def request(problem: str, kind: str, folder: str = "") -> dict[str, object]:
    asked = ProblemId.parse(problem)
    topology = find_topology(asked.topology, asked.gpus)
    driver, parts = str(SERIES.driver), (SERIES.first_part,)
    wanted = driving.Request(driver, str(asked.workload), topology, parts, folder=folder)
    return to_builtins(wanted) | {"kind": kind}


@pytest.fixture(scope="module")
def installed():
    with Upstream("torchrec", driving.__name__, INSTALLED.folder) as upstream:
        yield upstream


@pytest.mark.parametrize("problem", PROBLEMS)
def test_it_decides_and_counts_as_the_upstream_variant(installed, problem, tmp_path):
    """This includes a file with every kind of lookup."""
    (tmp_path / "lookups.csv").write_text(LOOKUPS)
    problem = problem.replace("lookups.csv", f"{tmp_path}/lookups.csv")
    answer = installed.ask(request(problem, "counts"))
    asked = ProblemId.parse(problem)
    built = FAMILY.work.build(asked.workload, find_topology(asked.topology, asked.gpus))
    run = FAMILY.find("upstream").prepared(built).run
    recorder = Recorder()
    with FAMILY.work.observe(recorder), recorder.call():
        plan = run()
    assert answer["fingerprint"] == FAMILY.work.fingerprint(plan)
    expected = FAMILY.work.quality(built, plan)["max_rank_ms"]
    assert answer["quality"]["max_rank_ms"] == pytest.approx(expected, rel=1e-9)
    # What the rungs past `upstream` save is counted there alone.
    counters = dict(recorder.counters)
    assert counters.pop("option_hashes") > 0
    assert counters.pop("option_sums") > 0
    counted = {name: n for name, n in answer["counters"].items() if "calls " not in name}
    assert counted.pop("enumerate_calls") > 0
    assert counted == {name: count for name, count in counters.items() if count}


def test_counts_repeat_and_phases_are_the_declared_ones(installed):
    """The times of phases add up to that of the call."""
    first, second = (installed.ask(request(PROBLEMS[0], "counts"))["counters"] for _ in range(2))
    assert first == second
    scans = (n for name, n in first.items() if name.startswith("calls enumerate annotations."))
    assert sum(scans) > 0.5 * first["enumerate_calls"]
    answer = installed.ask(request(PROBLEMS[0], "times"))
    assert set(answer["phases"]) == set(SERIES.releases.phases)
    assert sum(answer["phases"].values()) == pytest.approx(answer["cpu_s"], rel=0.2)


@pytest.mark.slow
@pytest.mark.skipif(not RELEASES, reason="shardbench releases torchrec installs them")
@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_every_installed_release_decides_as_this_one(installed, folder):
    """Its plan has the same fingerprint."""
    with Upstream(folder.name, driving.__name__, folder) as upstream:
        answer = upstream.ask(request(PROBLEMS[0], "times", str(folder)))
    assert answer["fingerprint"] == installed.ask(request(PROBLEMS[0], "counts"))["fingerprint"]
