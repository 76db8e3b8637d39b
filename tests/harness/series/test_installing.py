"""Releases are named, listed, installed into folders, and found there."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from toy_library import LIBRARY, write_installed, write_wheel

from harness.model.errors import ShardbenchError, UsageError
from harness.series.installing import (
    given_place,
    install,
    installed_place,
    releases_in,
    releases_on_index,
)

KNOWN = ["1.9.2", "1.10.0", "1.5.0", "1.5.1", "1.6.1", "0.9.0"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("1.5.0..1.9.2", ["1.5.0", "1.5.1", "1.6.1", "1.9.2"]),
        ("1.5.1..", ["1.5.1", "1.6.1", "1.9.2", "1.10.0"]),
        ("..1.5.0", ["0.9.0", "1.5.0"]),
        ("..", ["0.9.0", "1.5.0", "1.5.1", "1.6.1", "1.9.2", "1.10.0"]),
        ("installed 1.6..1.7 3.0 installed", ["1.6.1", "3.0", "installed"]),
        ("1.10.0 1.9.2 1.10.0 1.5", ["1.5", "1.9.2", "1.10.0"]),
    ],
)
def test_a_range_has_all_releases_from_one_to_the_other(words: str, expected: list[str]) -> None:
    """Each is there once, the oldest first, and the installed one last."""
    assert releases_in(words.split(), lambda: KNOWN) == expected


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
    """The error names the word."""
    with pytest.raises(UsageError, match=named):
        releases_in([word], lambda: KNOWN)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make pip use a folder with the wheels of two releases as its index; return the folder."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "1.0.0")
    write_wheel(folder, "2.0.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_the_index_is_asked_through_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index without the library is one sentence."""
    assert releases_on_index(LIBRARY) == ["2.0.0", "1.0.0"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels / "none"))
    with pytest.raises(ShardbenchError, match="does not say which releases of toylib there are: "):
        releases_on_index(LIBRARY)


def test_a_release_is_installed_once_without_its_dependencies(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is complete from the beginning."""
    folder = tmp_path / "deep" / "releases"
    place = install(LIBRARY, "2.0.0", folder)
    assert (place.release, place.folder) == ("2.0.0", folder / "toylib-2.0.0")
    assert (place.folder / "toylib" / "__init__.py").is_file()
    assert [each.name for each in folder.iterdir()] == ["toylib-2.0.0"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert install(LIBRARY, "2.0.0", folder) == place


def test_a_failed_installation_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    """The reason is pip's last error."""
    folder = tmp_path / "releases"
    said = r"^toylib 3\.0\.0 could not be installed: No matching distribution found for .*0\.0\.$"
    with pytest.raises(ShardbenchError, match=said):
        install(LIBRARY, "3.0.0", folder)
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ShardbenchError, match=r"written|installed"):
        install(LIBRARY, "1.0.0", tmp_path / "file" / "releases")


def living(group: int) -> bool:
    """Return whether a process of a group runs."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def test_a_killed_installation_leaves_no_release_and_the_next_one_succeeds(
    wheels: Path, tmp_path: Path
) -> None:
    """The next one removes the temporary folder."""
    # A wheel that takes long enough to be killed in.
    write_wheel(wheels, "4.0.0", source="x = '" + "0" * 60_000_000 + "'\n")
    folder = tmp_path / "releases"
    program = (
        "from pathlib import Path\nfrom harness.series.installing import install\n"
        f"install('toylib', '4.0.0', Path({str(folder)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    until = time.monotonic() + 60
    while not list(folder.glob(".toylib-4.0.0.*.partial")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while living(process.pid):  # pip among them, which may hold the lock that it was forked with
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not (folder / "toylib-4.0.0").exists()
    assert list(folder.glob(".toylib-4.0.0.*.partial")) != []
    write_wheel(wheels, "4.0.0")
    assert install(LIBRARY, "4.0.0", folder).folder.is_dir()
    assert [each.name for each in folder.iterdir()] == ["toylib-4.0.0"]


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
