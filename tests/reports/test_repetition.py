import pytest
from made_up_results import assert_in_order, cell, results_of
from reports.family.shortfalls import repetition

from reports.core.frames import UsageError
from reports.family.data import families

ENOUGH = {"copies": 1, "searches": "distinct"}


@pytest.fixture
def told(tmp_path):
    def tell(*lines):
        found = families(results_of(tmp_path, lines))
        return [(f.sentence, f.detail) for family in found for f in repetition(family)]

    return tell


def counted(variant, copies, searches, distinct=10, **changes):
    counters = {"copies": copies, "searches": searches, "distinct": distinct}
    return cell(variant, counters=counters, counter_enough=ENOUGH, **changes)


def test_work_that_is_repeated_is_told_in_one_line_by_counter(told):
    copies, searches = told(
        counted("slow-copy", 1234, 90, decision="reference"),
        counted("half-copy", 567, 10, ratio=0.5),
        counted("no-copy", 0, 10, ratio=0.4),
    )
    assert_in_order(copies[0], "`copies`", "1,234 in `slow-copy`", "567 in `half-copy`", "1 is")
    assert_in_order(copies[1], "`crates[boxes=10,seed=1]/toy_rack:4`", "Copies made", "`no-copy`")
    assert_in_order(searches[0], "`searches`", "90 in `slow-copy`", "10 is")
    assert_in_order(searches[1], "`half-copy`", "`no-copy`")


def test_it_is_told_of_the_problem_where_most_is_too_much(told):
    ((sentence, detail),) = told(
        counted("slow-copy", 3, 10, decision="reference"),
        counted("slow-copy", 7, 10, boxes=20, decision="reference"),
        counted("no-copy", 2, 10, boxes=20, ratio=0.4),
    )
    assert_in_order(sentence, "`copies`", "7 in `slow-copy`", "2 in `no-copy`", "1 is")
    assert "boxes=20" in detail


def test_no_more_than_is_enough_is_no_finding(told):
    assert told(counted("slow-copy", 1, 10), counted("no-copy", 0, 9, ratio=0.4)) == []


def test_what_is_not_known_to_be_enough_is_no_finding(told):
    assert told(cell(counters={"copies": 5}, counter_enough={"searches": 1})) == []
    assert told(cell(counters={"copies": 5}, counter_enough={"copies": "distinct"})) == []


@pytest.mark.parametrize("enough", [[1], {}, True, "NaN"])
def test_a_file_with_something_else_as_enough_is_refused_or_passed_over(told, enough):
    line = cell(counters={"copies": 5}, counter_enough={"copies": enough})
    if isinstance(enough, str):
        assert told(line) == []
    else:
        with pytest.raises(UsageError, match=r"'counter_enough\[...\]'"):
            told(line)
