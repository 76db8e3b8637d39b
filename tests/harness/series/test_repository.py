"""Commits are those of the named repository, whatever git's environment and settings."""

from pathlib import Path

import pytest
from toy_library import ToyRepository

from harness.model.errors import ShardbenchError
from harness.series.repository import Repository

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


def test_no_variable_or_setting_changes_what_is_read(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_message_may_have_any_bytes(
    toy: ToyRepository, tmp_path: Path, message: bytes, title: str
) -> None:
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


def test_folders_of_all_kinds_of_clones_are_the_repository(
    toy: ToyRepository, tmp_path: Path
) -> None:
    """Paths are those of the root; bare clones and worktrees have other folders."""
    whole = Repository(toy.folder)
    last = whole.commit("HEAD")
    toy.git("clone", "-q", "--mirror", ".", str(tmp_path / "bare.git"))
    toy.git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    for folder in (toy.folder / PLANNING, tmp_path / "bare.git", tmp_path / "tree"):
        other = Repository(folder)
        assert other.commits(None, last, [PLANNING]) == whole.commits(None, last, [PLANNING])
        assert other.tree(last, [PLANNING], []) == whole.tree(last, [PLANNING], [])


def test_without_git_it_is_named(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program is one sentence."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ShardbenchError, match="needs git, which is not on the PATH"):
        Repository(toy.folder)
