import pytest

from harness.model.errors import ShardbenchError, UsageError
from harness.series.naming import is_build_of, pip_reason, releases_in, releases_on_index

KNOWN = ["1.9.2", "1.10.0", "1.5.0", "1.5.1", "1.6.1", "0.9.0"]


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


@pytest.mark.parametrize(
    ("word", "named"),
    [
        *((word, "is no release") for word in ("", "newest", "1.5.0; rm -rf", "--help", "x..1.5")),
        ("1.5.0...x", "'.x' is no release"),
        ("1.9.2..1.5.0", r"1\.9\.2\.\.1\.5\.0 ends before it begins"),
        ("1.7..1.8", r"no release in the range 1\.7\.\.1\.8"),
    ],
)
def test_other_words_are_refused(word: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        releases_in([word], lambda: KNOWN)


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
