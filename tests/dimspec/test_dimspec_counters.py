"""The work of a call is counted, as in the real releases, and counting leaves nothing behind."""

import pytest
from small_streams import SEARCHES, checked, problem_of

from harness.contract import NotApplicable
from harness.contract.recorder import Recorder
from planners.dimspec import FAMILY
from planners.dimspec.conversion import greedy
from planners.dimspec.conversion.interned import Layouts
from planners.dimspec.implementation import fingerprint, observe

BEGINNING = "resnet50[calls=60]/dgx_a100_80gb:4"

# As ColossalAI 0.4.0 counts; 0.4.1 differs in the dictionaries alone.
RELEASED = {
    "conversions": 60,
    "dictionaries_built": 1314,
    "difference_calls": 1572,
    "dim_specs_built": 1314,
    "distinct_searches": 55,
    "expansions": 84,
    "searches": 60,
    "sharding_specs_built": 591,
}
TABLES = {"dictionaries_built": 0, "dim_specs_built": 0, "difference_calls": 0, "expansions": 59}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("eager-dict", {}),
        ("lazy-dict", {"dictionaries_built": 729}),
        ("shared-dict", {"dictionaries_built": 1}),
        (
            "path-cache",
            {
                "dictionaries_built": 1,
                "dim_specs_built": 1282,
                "sharding_specs_built": 575,
                "difference_calls": 1540,
                "searches": 55,
                "expansions": 82,
            },
        ),
        ("interned", TABLES | {"searches": 55, "sharding_specs_built": 33}),
        ("optimal", TABLES | {"searches": 55, "sharding_specs_built": 59}),
    ],
)
def test_the_work_is_that_of_the_releases_or_less(name, changed):
    """The rewritten searches count exactly what ColossalAI 0.4.0 and 0.4.1 count."""
    found = checked(name, BEGINNING)
    assert found.counters == RELEASED | changed
    assert set(found.phases) <= set(FAMILY.phases)
    assert (found.phases["dictionaries"] > 0) == (found.counters["dictionaries_built"] > 0)


@pytest.mark.parametrize("name", SEARCHES)
def test_observing_changes_no_answer_and_is_undone(name):
    """After the call, also after an error, every method is as before."""
    stream = problem_of("all-pairs[rank=2]/dgx_a100_80gb:4")
    owners = (greedy, greedy.GreedySearch, greedy.DimSpec, Layouts, SEARCHES[name]().__class__)
    before = [dict(vars(owner)) for owner in owners]
    prepared = FAMILY.find(name).prepared(stream)
    plain = fingerprint(prepared.run())
    recorder = Recorder()

    def observed():
        with observe(recorder):
            assert [dict(vars(owner)) for owner in owners] != before
            prepared.run()
            assert not +recorder.counters  # outside of the call
            with recorder.call():
                assert fingerprint(prepared.run()) == plain
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        observed()
    assert [dict(vars(owner)) for owner in owners] == before
    progress = recorder.progress()
    assert (progress.done, progress.total) == (81, 81)


def test_a_third_mesh_axis_is_not_applicable_to_colossalais_search():
    """Its dictionary of differences has no such axis; our searches go on."""
    cube = problem_of("all-pairs[rank=2,mesh=2x2x2]/dgx_a100_80gb:8")
    with pytest.raises(NotApplicable, match="more than 2 axes"):
        FAMILY.reference.prepared(cube)
    assert FAMILY.find("interned").prepared(cube).run().costs
