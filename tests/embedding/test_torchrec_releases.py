"""The driver that measures torchrec's releases agrees with the family on the installed release."""

from pathlib import Path

import pytest
from msgspec import to_builtins

from harness.contract import Recorder, Topology, Upstream
from harness.contract.abilities import load
from harness.model.ids import ProblemId, WorkloadSpec
from harness.series import driving
from harness.series.installing import Place, installed_place
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROBLEMS = (
    "dlrm-856[tables=4,seed=1]/dgx_a100_80gb:8",
    "synthetic[tables=6,seed=7,memory=tight]/dgx_h100:16",
    "dlrm-856[tables=3,seed=2,memory=roomy]/gb200_nvl72_tray4:72",
)


SERIES = load(FAMILY.abilities.series)


def request(workload: WorkloadSpec, topology: Topology, kind: str) -> dict[str, object]:
    wanted = driving.Request(str(SERIES.driver), str(workload), topology, (SERIES.first_part,))
    return to_builtins(wanted) | {"kind": kind}


def request_of(problem: str, kind: str) -> dict[str, object]:
    parsed = ProblemId.parse(problem)
    return request(parsed.workload, find_topology(parsed.topology, parsed.gpus), kind)


@pytest.fixture(scope="module")
def installed():
    place = installed_place("torchrec")
    with Upstream("torchrec", driving.__name__, place.folder) as upstream:
        yield upstream


@pytest.mark.parametrize("problem", PROBLEMS)
def test_it_decides_and_counts_as_the_upstream_variant(installed, problem):
    answer = installed.ask(request_of(problem, "counts"))
    found = ProblemId.parse(problem)
    built = FAMILY.work.build(found.workload, find_topology(found.topology, found.gpus))
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


def test_it_decides_as_the_upstream_variant_for_every_kind_of_lookup(installed, tmp_path):
    """A release plans pooled, weighted and sequence lookups of a file as the variant does."""
    file = tmp_path / "t.csv"
    file.write_text(
        "rows,dim,pooling_factor,lookup\n"
        "2e6,64,20,sequence\n3e5,128,50,sequence\n5e6,64,9,weighted\n4e6,32,9,pooled\n"
    )
    workload, topology = WorkloadSpec(str(file)), find_topology("dgx_h100", 16)
    plan = FAMILY.find("upstream").prepared(FAMILY.work.build(workload, topology)).run()
    assert installed.ask(request(workload, topology, "counts"))[
        "fingerprint"
    ] == FAMILY.work.fingerprint(plan)


def test_counts_repeat_and_phases_are_the_declared_ones(installed):
    first, second = (installed.ask(request_of(PROBLEMS[0], "counts"))["counters"] for _ in range(2))
    assert first == second
    scans = (n for name, n in first.items() if name.startswith("calls enumerate annotations."))
    assert sum(scans) > 0.5 * first["enumerate_calls"]
    answer = installed.ask(request_of(PROBLEMS[0], "times"))
    assert set(answer["phases"]) == set(SERIES.releases.phases)
    assert sum(answer["phases"].values()) == pytest.approx(answer["cpu_s"], rel=0.2)


def kept() -> list[Place]:
    folder = ROOT / "upstreams" / "releases"
    return [
        Place(path.name.removeprefix("torchrec-"), path)
        for path in sorted(folder.glob("torchrec-*"))
    ]


@pytest.mark.slow
@pytest.mark.skipif(not kept(), reason="shardbench releases torchrec installs them")
@pytest.mark.parametrize("place", kept(), ids=lambda place: place.release)
def test_every_installed_release_decides_as_this_one(installed, place):
    with Upstream(place.release, driving.__name__, place.folder) as upstream:
        asked_there = request_of(PROBLEMS[0], "times") | {"folder": str(place.folder)}
        answer = upstream.ask(asked_there)
    assert answer["fingerprint"] == installed.ask(request_of(PROBLEMS[0], "counts"))["fingerprint"]
