import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from harness.model.errors import ShardbenchError, UsageError
from harness.series.naming import is_build_of, pip_reason, releases_in, releases_on_index

KNOWN = ["1.9.2", "1.10.0", "1.5.0", "1.5.1", "1.6.1", "0.9.0"]

versions = st.builds("{}.{}.{}".format, *[st.integers(0, 12)] * 3)


def none() -> list[str]:
    raise AssertionError("the index is asked for a range only")


def test_releases_come_in_the_order_of_versions_each_once() -> None:
    assert releases_in(["1.10.0", "1.9.2", "1.10.0", "1.5"], none) == ["1.5", "1.9.2", "1.10.0"]


def test_the_installed_one_comes_last() -> None:
    assert releases_in(["installed", "1.5.0", "installed"], none) == ["1.5.0", "installed"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("1.5.0..1.9.2", ["1.5.0", "1.5.1", "1.6.1", "1.9.2"]),
        ("1.5.1..", ["1.5.1", "1.6.1", "1.9.2", "1.10.0"]),
        ("..1.5.0", ["0.9.0", "1.5.0"]),
        ("..", ["0.9.0", "1.5.0", "1.5.1", "1.6.1", "1.9.2", "1.10.0"]),
        ("1.6..1.7", ["1.6.1"]),
    ],
)
def test_a_range_has_all_releases_from_one_to_the_other(word: str, expected: list[str]) -> None:
    assert releases_in([word], lambda: KNOWN) == expected


@settings(max_examples=15)
@given(st.lists(versions, min_size=1, unique=True), versions, versions)
def test_a_range_has_what_lies_in_it_and_nothing_else(known: list[str], a: str, b: str) -> None:
    low, high = sorted((a, b), key=Version)
    expected = [each for each in known if Version(low) <= Version(each) <= Version(high)]
    if expected:
        found = releases_in([f"{low}..{high}"], lambda: known)
        assert found == sorted(expected, key=Version)
    else:
        with pytest.raises(UsageError, match="no release in the range"):
            releases_in([f"{low}..{high}"], lambda: known)


@pytest.mark.parametrize("word", ["", "newest", "1.5.0; rm -rf", "--help", "1.5.0...x", "x..1.5"])
def test_what_is_no_release_is_said(word: str) -> None:
    with pytest.raises(UsageError, match="is no release; write a version such as"):
        releases_in([word], lambda: KNOWN)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The range 1\.9\.2\.\.1\.5\.0 ends before it begins\."):
        releases_in(["1.9.2..1.5.0"], lambda: KNOWN)


@pytest.mark.parametrize(
    ("held", "release", "expected"),
    [
        ("1.0.0", "1.0", True),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.13.0+cpu", "2.13.0+cpu", True),
        ("2.13.0", "2.13.0+cpu", False),
        ("2.13.1", "2.13.0", False),
    ],
)
def test_a_local_version_is_a_build_of_its_release(held: str, release: str, expected: bool) -> None:
    assert is_build_of(held, release) == expected


def test_pips_reason_is_its_last_error_without_the_list_of_versions() -> None:
    printed = (
        "WARNING: something else\n"
        "ERROR: Could not find a version that satisfies the requirement (from versions: 1, 2)\n"
        "ERROR: No matching distribution found for toylib==9\n"
    )
    assert pip_reason(printed) == "No matching distribution found for toylib==9."
    assert pip_reason("") == "pip gives no reason."


def test_an_index_that_has_nothing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ShardbenchError, match="does not say which releases of toylib there are: "):
        releases_on_index("toylib")
