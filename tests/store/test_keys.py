"""What a suite still has to measure, by the ids and keys of stored entries."""

import pytest
from msgspec.structs import replace

from harness.model.cell import Environment
from harness.model.settings import SamplingRule, Settings
from harness.store.keys import ELSEWHERE, Key, Task, difference, key_of, missing, unused
from harness.store.lines import Entry

HERE = Environment(
    code="c", family_code="f", machine="m", python="3.11", packages={"numpy": "2"}, load=0.5
)
KEY = key_of(HERE, Settings(memory_gib=4), "reference")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"load": 0.9, "started": "now", "seed": 3}, ""),
        ({"machine": "other"}, ELSEWHERE),
        ({"code": "other"}, "other code of shardbench or of its families"),
        ({"family_code": "other"}, "other code of its family"),
        ({"python": "3.12"}, "other versions of Python or packages"),
        ({"packages": {}}, "other versions of Python or packages"),
    ],
)
def test_a_key_depends_on_code_versions_and_machine(changes, why):
    """The reason of a difference is one of four."""
    stored = key_of(replace(HERE, **changes), Settings(memory_gib=4), "reference")
    assert difference(str(stored), KEY) == why
    assert Key.parse(str(stored)) == stored


def test_a_key_depends_on_what_the_user_chose():
    """Other settings or another baseline make another key."""
    for chosen in (
        (Settings(1.0, memory_gib=4), "reference"),
        (Settings(sampling=SamplingRule(seed=1), memory_gib=4), "reference"),
        (Settings(memory_gib=4), "another"),
    ):
        assert difference(str(key_of(HERE, *chosen)), KEY) == "other settings"
    assert difference("", KEY)


def entry(name: str, **changes: str) -> Entry[str]:
    return Entry(name, str(replace(KEY, **changes)), f"{name} {changes or ''}".strip())


TASK = Task("task", frozenset("ab"), KEY)
ANYWHERE = Task("task", frozenset("ab"), replace(KEY, machine=""))


@pytest.mark.parametrize(
    ("task", "stored", "values", "is_complete"),
    [
        (TASK, [], [], False),
        (TASK, [Entry("a", str(KEY), "old"), entry("a"), entry("c")], ["a"], False),
        (TASK, [entry("a"), entry("b", code="other")], ["a"], False),
        (TASK, [entry("b"), entry("a")], ["a", "b"], True),
        (ANYWHERE, [entry("a"), entry("b", machine="x")], ["a", "b {'machine': 'x'}"], False),
        (ANYWHERE, [entry("a", machine="x"), entry("b", machine="x")], None, True),
    ],
)
def test_a_task_is_complete_if_one_machine_has_all_entries(task, stored, values, is_complete):
    """Entries of two machines never complete each other."""
    (found,) = missing([task], stored)
    assert found.is_complete is is_complete
    assert values is None or list(found.values) == values


def test_entries_that_do_not_count_are_told_by_their_reason():
    """Newer entries of the same id replace older ones."""
    stored = [
        entry("a"),
        entry("b", code="other"),
        entry("elsewhere", family="x", settings="y"),
        entry("older", code="other"),
    ]
    reasons, used = unused([TASK], stored)
    assert [entry.id for entry in used] == ["a", "elsewhere"]
    assert reasons == {"other code of shardbench or of its families": 2}
