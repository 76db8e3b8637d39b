"""Whatever happens to the files of a cache, planning goes on, and nothing of others is lost."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import cached_plans
import pytest
from cached_plans import GIB, files, placement, planned, rows_of, told

from planners.embedding.plan_cache import folder as folder_module
from planners.embedding.plan_cache.cache import PlanCache
from planners.embedding.plan_cache.folder import PlanFolder, digest

ROWS = rows_of(4)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path):
    """Return the file of a cached plan of `ROWS`."""
    planned(PlanCache(tmp_path), ROWS)
    [written] = files(tmp_path)
    return written


def rewrite(file: Path, content: bytes) -> None:
    """Replace a plan's content, with the name that the cache would give such a file."""
    subject, key, _ = file.stem.split("-")
    file.unlink()
    checksum = digest(key.encode(), content, letters=16)
    file.with_name(f"{subject}-{key}-{checksum}.json").write_bytes(content)


def swapped(old: bytes, new: bytes):
    """Return a function that changes a plan and gives it the right checksum."""
    return lambda file: rewrite(file, file.read_bytes().replace(old, new))


DAMAGES = {
    "a changed rank": lambda file: file.write_bytes(file.read_bytes().replace(b"1,", b"2,", 1)),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "not JSON": lambda file: rewrite(file, b"[" * 10_000),
    "no figures": swapped(b"max_rank_ms", b"ms"),
    "another rating": swapped(b'"max_rank_ms":', b'"max_rank_ms":1'),
    "another kernel": swapped(b'"fused"', b'"key"'),
    "too much memory": swapped(b'"hbm":', b'"hbm":9999999'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_file_is_a_miss_and_one_warning(damage, file, tmp_path, caplog):
    """A damaged file, or a plan that fails a check, is replaced by the plan of a search."""
    DAMAGES[damage](file)
    cache = PlanCache(tmp_path)
    made = planned(cache, ROWS)
    assert made.from_cache == ""
    assert placement(made) == placement(planned(None, ROWS))
    assert len(told(caplog)) == 1
    if damage != "a pipe":  # that stays where it is
        assert planned(cache, ROWS).from_cache == "hit"


def test_files_of_others_are_neither_read_nor_removed(file, tmp_path, caplog):
    """Files with names that the folder does not give stay, whatever the limit of its size."""
    others = [tmp_path / name for name in ("notes.json", f"{file.stem[:-1]}.json", "x.partial")]
    for other in others:
        other.write_bytes(b"mine")
    assert planned(PlanCache(tmp_path, most_gib=1 / GIB), rows_of(3)).from_cache == ""
    assert [other.read_bytes() for other in others] == [b"mine"] * 3
    assert told(caplog) == []


@contextmanager
def nothing_can_be_written(folder):
    """Make a folder read-only, also for root, who may write everywhere."""
    root = os.geteuid() == 0
    for path in (*folder.iterdir(), folder, *folder.parents[:-2]):
        path.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextmanager
def full_disk(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "trouble",
    [nothing_can_be_written, full_disk, lambda folder: PlanFolder(folder, GIB)._locked()],
    ids=["read-only", "full disk", "locked by another process"],
)
def test_a_plan_that_cannot_be_kept_is_one_warning(trouble, file, tmp_path, caplog, monkeypatch):
    """Plans are still loaded and searched for, and no part of a file is left."""
    monkeypatch.setattr(folder_module, "_PAUSE", 0.0)
    cache = PlanCache(tmp_path)
    with trouble(tmp_path):
        assert planned(cache, ROWS).from_cache == "hit"
        for tables in (2, 3):
            assert planned(cache, rows_of(tables)).from_cache == ""
    assert len(told(caplog)) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {file.name, ".lock"}
    assert planned(cache, ROWS).from_cache == "hit"


def test_a_folder_that_cannot_be_made_or_read_is_one_warning_each(tmp_path, caplog):
    """A file in the place of the folder stops no planning."""
    (tmp_path / "file").write_text("")
    cache = PlanCache(tmp_path / "file")
    assert [planned(cache, ROWS).from_cache for _ in range(2)] == ["", ""]
    assert len(told(caplog)) == 2


def forked(run) -> int:
    """Call a function in a child process, and return the child's id."""
    child = os.fork()
    if child:
        return child
    try:
        run()
        os._exit(0)
    finally:
        os._exit(1)


def test_a_kill_while_writing_leaves_whole_plans(file, tmp_path, monkeypatch):
    """The next write finds the lock free, and removes the part that was left."""

    def killed(path, content):
        path.with_name(f".{path.name}.partial").write_bytes(content[:3])
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "replace_file", killed)
        child = forked(lambda: PlanFolder(tmp_path, GIB).write("0" * 16, "1" * 32, b"a plan"))
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    cache = PlanCache(tmp_path)
    assert planned(cache, ROWS).from_cache == "hit"
    planned(cache, rows_of(2))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ""}
    assert len(files(tmp_path)) == 2


def test_eight_processes_at_once_lose_nothing(tmp_path):
    """They write some plans of their own, and one that all write."""

    def write(number):
        own = PlanFolder(tmp_path, GIB)
        for turn in range(5):
            own.write("a" * 16, f"{number}{turn}".zfill(32), bytes([number]) * 20_000)
            own.write("b" * 16, "f" * 32, bytes([number, turn]) * 10_000)
            assert all(own.read(each) for each in own.files() if each.subject[0] == "a")
        assert not own._reported

    children = [forked(lambda number=number: write(number)) for number in range(8)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    after = PlanFolder(tmp_path, GIB)
    assert len(after.files()) == 8 * 5 + 1
    assert all(after.read(each) for each in after.files())


def test_another_process_with_another_hash_seed_and_place_hits(tmp_path):
    """The key depends on neither the process, its hash seed nor the path of the folder."""
    first, second = tmp_path / "first", tmp_path / "second"
    planned(PlanCache(first), ROWS, mode="best-plan")
    shutil.copytree(first, second)
    path = [os.environ.get("PYTHONPATH", ""), str(ROOT)]
    again = subprocess.check_output(
        [sys.executable, "-W", "ignore", cached_plans.__file__, second],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "7"},
        text=True,
    )
    assert again.split() == ["hit"]
