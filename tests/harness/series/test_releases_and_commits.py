"""Releases are installed into folders and found there; commits are of the named repository."""

import os
import re
from pathlib import Path

import pytest
from toy_library import LIBRARY, ToyRepository, write_installed, write_wheel

from harness.model.errors import ShardbenchError, UsageError
from harness.series.installing import (
    given_place,
    install,
    installed_place,
    releases_in,
)
from harness.series.repository import Repository

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
def test_releases_are_named_by_versions_and_ranges(words, expected):
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


def test_a_release_is_installed_completely_or_not_at_all(wheels, tmp_path, monkeypatch):
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


def test_a_given_folder_must_have_the_release(wheels, tmp_path):
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


PLANNING = "toylib/planning"


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    """A repository with two commits that touch the planner, and one that does not."""
    repository = ToyRepository(tmp_path / "clone")
    repository.version("the first")
    repository.version("Scan more (#41)", scans=9, plan=4)
    repository.commit("a note", {"toylib/n\u00f6te.txt": "a word"})
    return repository


def read(path: Path) -> tuple[object, ...]:
    """Return everything that a history reads of a repository."""
    repository = Repository(path)
    last = repository.commit("HEAD")
    commits = repository.commits(None, last, [PLANNING])
    tree = repository.tree(last, ["toylib"], ["tests"])
    repository.check_out(last, "toylib", path.parent / "out")
    files = sorted(str(file) for file in (path.parent / "out").rglob("*"))
    return last, commits, repository.parent(last), tree, files


def test_no_variable_or_setting_changes_what_is_read(toy, tmp_path, monkeypatch):
    """Git sets some of the variables in a hook, for the hook's own repository."""
    toy.commit("Un \u00e9t\u00e9 (#42)", {f"{PLANNING}/note.txt": "a word"})
    expected = read(toy.folder)
    other = ToyRepository(tmp_path / "other")
    other.version("of another repository")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(other.folder / ".git"))
    settings = {
        "log.showSignature": "true",
        "log.follow": "true",
        "core.abbrev": "5",
        "i18n.logOutputEncoding": "UTF-16",
        "core.quotePath": "false",
        "format.pretty": "fuller",
    }
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (name, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    assert read(toy.folder) == expected


@pytest.mark.parametrize(
    ("message", "title"),
    [
        (b"caf\xe9 (#7)\n", "caf\ufffd"),
        (b"a\x1eb\x1fc (#7)\n\nbody\x1e\x1f\n\n\x1e", "a\x1eb\x1fc"),
    ],
)
def test_a_message_may_have_any_bytes(toy, tmp_path, message, title):
    """A title is text, whatever its bytes and the author's; the commits around it are read too."""
    file = tmp_path / "message"
    written = toy.git("cat-file", "commit", "HEAD").partition("\n\n")[0].encode()
    file.write_bytes(written.replace(b"A Tester", b"Zo\xeb") + b"\n\n" + message)
    toy.git("reset", "-q", "--hard", toy.git("hash-object", "-t", "commit", "-w", str(file)))
    toy.commit("the last", {})
    repository = Repository(toy.folder)
    last = repository.commit("HEAD")
    before = repository.parent(last)
    assert before is not None
    assert (last.title, before.title, before.pull_request) == ("the last", title, "7")
    assert len(repository.commits(None, last, [])) == 4


def test_folders_of_all_kinds_of_clones_are_the_repository(toy, tmp_path):
    """Paths are those of the root; bare clones and worktrees have other folders."""
    whole = Repository(toy.folder)
    last = whole.commit("HEAD")
    toy.git("clone", "-q", "--mirror", ".", str(tmp_path / "bare.git"))
    toy.git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    for folder in (toy.folder / PLANNING, tmp_path / "bare.git", tmp_path / "tree"):
        other = Repository(folder)
        assert other.commits(None, last, [PLANNING]) == whole.commits(None, last, [PLANNING])
        assert other.tree(last, [PLANNING], []) == whole.tree(last, [PLANNING], [])


def test_without_git_it_is_named(toy, monkeypatch):
    """A missing program is one sentence."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ShardbenchError, match="needs git, which is not on the PATH"):
        Repository(toy.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another owner")
def test_another_owners_repository_comes_with_the_remedy(toy, tmp_path, monkeypatch):
    """In a container, a mounted clone belongs to a user of the host, and git refuses to read it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    os.chown(toy.folder, 1234, 1234)
    with pytest.raises(UsageError, match=f"git config .* safe.directory {toy.folder}'"):
        Repository(toy.folder)
