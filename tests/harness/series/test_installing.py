"""Releases are named, listed, installed into folders, and found there."""

import re
from pathlib import Path

import pytest
from toy_library import LIBRARY, write_installed, write_wheel

from harness.model.errors import ShardbenchError, UsageError
from harness.series.installing import (
    given_place,
    install,
    installed_place,
    releases_in,
)

KNOWN = ["1.9.2", "1.10.0", "1.5.0", "1.5.1", "1.6.1", "0.9.0"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("1.5.0..1.9.2", ["1.5.0", "1.5.1", "1.6.1", "1.9.2"]),
        ("1.5.1..", ["1.5.1", "1.6.1", "1.9.2", "1.10.0"]),
        ("..1.5.0", ["0.9.0", "1.5.0"]),
        ("installed 1.6..1.7 3.0 installed", ["1.6.1", "3.0", "installed"]),
        ("1.10.0 1.9.2 1.10.0 1.5", ["1.5", "1.9.2", "1.10.0"]),
        *((word, "is no release") for word in ("newest", "1.5.0; rm -rf", "--help", "1.5.0...x")),
        ("1.9.2..1.5.0", "1.9.2..1.5.0 ends before it begins"),
        ("1.7..1.8", "no release in the range 1.7..1.8"),
    ],
)
def test_releases_are_named_by_versions_and_ranges(words: str, expected: list[str] | str) -> None:
    """Each is there once, the oldest first, and the installed one last."""
    if isinstance(expected, list):
        assert releases_in(words.split(), lambda: KNOWN) == expected
    else:
        with pytest.raises(UsageError, match=re.escape(expected)):
            releases_in([words], lambda: KNOWN)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make pip use a folder with the wheels of two releases as its index; return the folder."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "1.0.0")
    write_wheel(folder, "2.0.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_release_is_installed_completely_or_not_at_all(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is installed once, without its dependencies; a failure has the last error of pip."""
    folder = tmp_path / "deep" / "releases"
    said = r"^toylib 3\.0\.0 could not be installed: No matching distribution found for .*0\.0\.$"
    with pytest.raises(ShardbenchError, match=said):
        install(LIBRARY, "3.0.0", folder)
    place = install(LIBRARY, "2.0.0", folder)
    assert (place.release, place.folder) == ("2.0.0", folder / "toylib-2.0.0")
    assert (place.folder / "toylib" / "__init__.py").is_file()
    assert [path.name for path in folder.iterdir()] == ["toylib-2.0.0"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert install(LIBRARY, "2.0.0", folder) == place
    with pytest.raises(ShardbenchError, match="could not be installed into"):
        install(LIBRARY, "1.0.0", place.folder / "toylib" / "__init__.py")


def test_a_given_folder_must_have_the_release(wheels: Path, tmp_path: Path) -> None:
    """The installed release has a folder, too."""
    folder = install(LIBRARY, "1.0.0", tmp_path).folder
    build = write_installed(tmp_path, "2.0.0+cpu")
    assert given_place(LIBRARY, f"1.0={folder}").folder == folder
    assert given_place(LIBRARY, f"2.0.0={build}").folder == build
    for text, sentence in (
        (f"1.0.0+cpu={folder}", "not 1.0.0"),
        (f"2.0.0={folder}", "holds toylib 1.0.0, not 2.0.0"),
        (f"1.0.0={wheels}", "does not hold toylib"),
        (f"1.0.0={tmp_path}/none", "does not hold toylib"),
        ("1.0.0", "must be VERSION=FOLDER"),
        (f"one={folder}", "is no release"),
    ):
        with pytest.raises(UsageError, match=sentence):
            given_place(LIBRARY, text)
    with pytest.raises(UsageError, match="toylib is not installed here"):
        installed_place(LIBRARY)
    assert (installed_place("pytest").folder / "pytest").is_dir()
