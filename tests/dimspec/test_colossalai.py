"""The real releases: they and their rewritten searches agree, and the drop-in changes nothing."""

from pathlib import Path

import pytest
from small_streams import checked

from harness.execution.upstream import Upstream
from harness.model.errors import ShardbenchError

REAL = ("colossalai-0.4.0", "colossalai-0.4.1", "colossalai-0.4.1+interned")
LIKE = {"colossalai-0.4.0": "eager-dict", "colossalai-0.4.1": "lazy-dict"}
RELEASES, DRIVER = tuple(LIKE), Path(__file__).with_name("accelerated_driver.py")

pytestmark = pytest.mark.upstreams(*RELEASES)


@pytest.mark.parametrize(
    "problem",
    [
        "resnet50[calls=60]/dgx_a100_80gb:4",
        "random[conversions=40]/dgx_a100_80gb:8",
        "all-pairs[shape=6x4x32,mesh=2x4]/dgx_a100_80gb:8",
    ],
)
def test_releases_decide_and_count_like_their_rewritten_searches(problem):
    """All counters are equal; with our answers, each conversion is searched for once."""
    for release, name in LIKE.items():
        real, ours = checked(release, problem), checked(name, problem)
        assert real.fingerprint == ours.fingerprint
        assert real.counters == ours.counters
        assert real.quality == ours.quality
    accelerated = checked(REAL[-1], problem)
    assert accelerated.fingerprint == ours.fingerprint
    assert accelerated.counters["searches"] == accelerated.counters["distinct_searches"]
    assert accelerated.counters["dictionaries_built"] == 0


def test_the_constructor_makes_the_same_strategies():
    """The hash of all strategies and costs is equal, and so is their sum."""
    cells = [checked(name, "constructor[model=mlp2]/dgx_a100_80gb:4") for name in REAL]
    assert len({cell.fingerprint for cell in cells}) == 1
    assert len({cell.quality["reported_millions"] for cell in cells}) == 1
    assert [cell.counters["dictionaries_built"] for cell in cells] == [79_992, 59_961, 0]
    assert {cell.counters["conversions"] for cell in cells} == {4_571}


def test_a_third_mesh_axis_is_upstreams_key_error():
    """The error of the library is one sentence."""
    with pytest.raises(ShardbenchError, match=r"^colossalai-0.4.1 failed: KeyError: "):
        checked("colossalai-0.4.1", "all-pairs[rank=2,mesh=2x2x2]/dgx_a100_80gb:8")


@pytest.mark.parametrize(
    "check",
    [
        "changes_nothing_that_a_program_sees",
        "searches_once_for_a_conversion",
        "gives_the_method_back",
        "may_end_before_what_began_after_it",
        "gives_threads_the_answers_of_one",
        "warns_once_on_other_releases_and_leaves_them_to_upstream",
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_accelerate(upstreams: dict[str, Upstream], release: str, check: str) -> None:
    """Each check passes in a process that has the real release."""
    upstreams[release].ask({"kind": check})
