import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from toy_library import LIBRARY, write_wheel

from harness.model.errors import ShardbenchError, UsageError
from harness.series.installing import given_place, install, installed_place
from harness.series.naming import releases_on_index


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make pip use a folder with the wheels of two releases as its index; return the folder."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "1.0.0")
    write_wheel(folder, "2.0.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def living(group: int) -> list[psutil.Process]:
    """Return the running processes of a process group."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_a_release_gets_a_folder_without_what_it_depends_on(wheels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "releases"
    place = install(LIBRARY, "2.0.0", folder)
    assert (place.release, place.folder) == ("2.0.0", folder / "toylib-2.0.0")
    assert (place.folder / "toylib" / "__init__.py").is_file()
    assert [each.name for each in folder.iterdir()] == ["toylib-2.0.0"]


def test_what_is_installed_is_not_installed_again(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install(LIBRARY, "1.0.0", tmp_path)
    (first.folder / "mark").touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert install(LIBRARY, "1.0.0", tmp_path) == first
    assert (first.folder / "mark").exists()


def test_a_failed_installation_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "releases"
    with pytest.raises(ShardbenchError, match=r"^toylib 3\.0\.0 could not be installed: .+\.$"):
        install(LIBRARY, "3.0.0", folder)
    assert list(folder.iterdir()) == []
    (wheels / "toylib-3.0.0-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(ShardbenchError, match="could not be installed"):
        install(LIBRARY, "3.0.0", folder)
    assert list(folder.iterdir()) == []


def test_a_killed_installation_leaves_no_release_and_the_next_one_succeeds(
    wheels: Path, tmp_path: Path
) -> None:
    # A wheel that takes long enough to be killed in.
    big = "x = '" + "0" * 60_000_000 + "'\n"
    write_wheel(wheels, "4.0.0", source=big)
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


def test_a_folder_that_cannot_be_written_is_one_sentence(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ShardbenchError, match=r"written|installed"):
        install(LIBRARY, "1.0.0", tmp_path / "file" / "releases")


def test_the_index_is_asked_through_pip(wheels: Path) -> None:
    assert releases_on_index(LIBRARY) == ["2.0.0", "1.0.0"]


def test_a_given_folder_must_hold_what_it_is_said_to(wheels: Path, tmp_path: Path) -> None:
    folder = install(LIBRARY, "1.0.0", tmp_path).folder
    assert given_place(LIBRARY, f"1.0={folder}").folder == folder
    for text, sentence in (
        (f"2.0.0={folder}", "holds toylib 1.0.0, not 2.0.0"),
        (f"1.0.0={wheels}", "does not hold toylib"),
        (f"1.0.0={tmp_path}/none", "is no folder"),
        ("1.0.0", "must be VERSION=FOLDER"),
        (f"one={folder}", "is no release"),
    ):
        with pytest.raises(UsageError, match=sentence):
            given_place(LIBRARY, text)


def test_what_is_not_installed_here_is_said() -> None:
    with pytest.raises(UsageError, match="toylib is not installed here"):
        installed_place(LIBRARY)
    assert (installed_place("pytest").folder / "pytest").is_dir()
