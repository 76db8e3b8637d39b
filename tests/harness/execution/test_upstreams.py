import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.execution.upstream import Upstream, folder, is_ready
from harness.model.errors import ShardbenchError

NAME = "library-1.0"

LIBRARY = "RELEASE = '1.0'\n"

DRIVER = """
import os, signal, sys, time
import library

calls = 0

def echo(request):
    global calls
    calls += 1
    return {"given": request, "calls": calls, "pid": os.getpid(), "release": library.RELEASE,
            "threads": os.environ["OMP_NUM_THREADS"], "seed": os.environ.get("PYTHONHASHSEED"),
            "group": os.getpgrp()}

def fail(request):
    raise ValueError("first line\\nsecond line")

def leave(request):
    sys.exit("no more")

def flood(request):
    for _ in range(2000):
        print("noise " * 50)
        os.write(1, b"{}\\n" * 50)
        os.write(2, b"noise without an end" * 50)
    return {"flooded": True}

def die(request):
    print("going down", file=sys.stderr)
    os._exit(3)

def be_killed(request):
    os.kill(os.getpid(), signal.SIGKILL)

def rubbish(request):
    os.write(int(sys.argv[3]), request["bytes"].encode())
    time.sleep(60)

def no_json(request):
    return {"set": {1, 2}}

def leave_a_fork(request):
    if os.fork() == 0:
        time.sleep(request["seconds"])
    os._exit(4)

def sleep(request):
    time.sleep(60)

HANDLERS = {handler.__name__: handler for handler in (
    echo, fail, leave, flood, die, be_killed, rubbish, no_json, leave_a_fork, sleep)}
"""

PARENT = """
from harness.execution.upstream import Upstream

upstream = Upstream({name!r}, {driver!r})
print(upstream.ask({{"kind": "echo"}})["pid"], flush=True)
upstream.ask({{"kind": "sleep"}})
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDBENCH_UPSTREAMS", str(tmp_path / "upstreams"))
    folder(NAME).mkdir(parents=True)
    (folder(NAME) / "library.py").write_text(LIBRARY)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    (tmp_path / "library.py").write_text("raise ImportError('the neighbour of the driver')\n")
    return driver


@pytest.fixture
def upstream(driver: Path) -> Iterator[Upstream]:
    with Upstream(NAME, driver) as upstream:
        yield upstream


def ends(pid: int) -> bool:
    """Wait up to 10 s for a process to end; return whether it ended."""
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def fails(upstream: Upstream, kind: str, **request: object) -> str:
    with pytest.raises(ShardbenchError) as failure:
        upstream.ask({"kind": kind, **request})
    return str(failure.value)


def test_one_child_answers_several_requests(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    first = upstream.ask({"kind": "echo", "cost": 0.1 + 0.2, "name": "ähnlich"})
    second = upstream.ask({"kind": "echo"})
    assert first["given"] == {"cost": 0.1 + 0.2, "name": "ähnlich"}
    assert first["release"] == "1.0"
    assert first["threads"] == "1"
    assert first["seed"] == "7"
    assert first["group"] == os.getpgrp()
    assert first["pid"] == second["pid"] != os.getpid()
    assert (first["calls"], second["calls"]) == (1, 2)


def test_an_error_is_one_sentence_and_the_child_stays(upstream: Upstream) -> None:
    before = upstream.ask({"kind": "echo"})
    assert fails(upstream, "fail") == f"{NAME} raised ValueError: first line"
    assert fails(upstream, "leave") == f"{NAME} raised SystemExit: no more"
    assert fails(upstream, "unknown") == f"{NAME} raised KeyError: 'unknown'"
    assert fails(upstream, "no_json").startswith(f"{NAME} raised TypeError: ")
    assert upstream.ask({"kind": "echo"})["pid"] == before["pid"]


def test_what_is_printed_does_not_damage_the_answer(upstream: Upstream) -> None:
    assert upstream.ask({"kind": "flood"}) == {"flooded": True}
    assert upstream.ask({"kind": "flood"}) == {"flooded": True}


def test_a_child_that_ends_is_an_error_and_the_next_question_starts_another(
    upstream: Upstream,
) -> None:
    before = upstream.ask({"kind": "echo"})
    assert fails(upstream, "die") == (
        f"{NAME} ended with exit code 3 without an answer, after printing: going down."
    )
    assert (
        fails(upstream, "be_killed")
        == f"{NAME} was killed by signal 9 (SIGKILL) without an answer."
    )
    after = upstream.ask({"kind": "echo"})
    assert after["pid"] != before["pid"]
    assert after["calls"] == 1


def test_a_child_that_leaves_a_fork_behind_is_seen_to_end(upstream: Upstream) -> None:
    sentence = fails(upstream, "leave_a_fork", seconds=2)
    assert sentence == f"{NAME} ended with exit code 4 without an answer."


@pytest.mark.parametrize("line", ["rubbish", "[1]", "{}", '{"answer": 3}', '{"error": 3}', "5"])
def test_rubbish_is_an_error_and_ends_the_child(upstream: Upstream, line: str) -> None:
    before = upstream.ask({"kind": "echo"})
    sentence = fails(upstream, "rubbish", bytes=f"{line}\n")
    assert sentence == f"{NAME} answered no JSON object but '{line}'."
    assert ends(before["pid"])


def test_an_answer_may_be_long(upstream: Upstream) -> None:
    numbers = [number / 7 for number in range(100_000)]
    assert upstream.ask({"kind": "echo", "numbers": numbers})["given"]["numbers"] == numbers


def test_closing_ends_the_child(upstream: Upstream) -> None:
    pid = upstream.ask({"kind": "echo"})["pid"]
    upstream.close()
    assert not psutil.pid_exists(pid)
    upstream.close()
    assert upstream.ask({"kind": "echo"})["calls"] == 1


def test_the_child_ends_with_its_parent_in_the_middle_of_an_answer(driver: Path) -> None:
    program = PARENT.format(name=NAME, driver=str(driver))
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert ends(pid)


def test_a_driver_that_cannot_be_loaded_says_why(driver: Path) -> None:
    (folder(NAME) / "library.py").write_text("raise ImportError('no CUDA here')\n")
    with Upstream(NAME, driver) as upstream:
        assert fails(upstream, "echo") == f"{NAME} raised ImportError: no CUDA here"
        assert fails(upstream, "echo") == f"{NAME} raised ImportError: no CUDA here"


def test_a_driver_may_be_a_module_of_the_upstreams_folder(driver: Path) -> None:
    driver.rename(folder(NAME) / "driver.py")
    with Upstream(NAME, "driver") as upstream:
        assert upstream.ask({"kind": "echo"})["release"] == "1.0"


def test_an_upstream_with_an_environment_is_run_by_it(driver: Path) -> None:
    python = folder(NAME) / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder(NAME)}:$PYTHONPATH" exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    (folder(NAME) / "library.py").write_text("import os\nRELEASE = os.environ['PYTHONPATH']\n")
    with Upstream(NAME, driver) as upstream:
        assert upstream.ask({"kind": "echo"})["release"] == f"{folder(NAME)}:"


def test_what_is_not_installed_is_said(driver: Path) -> None:
    assert is_ready(NAME)
    assert not is_ready("library-2.0")
    with Upstream("library-2.0", driver) as upstream:
        assert fails(upstream, "echo") == (
            f"library-2.0 is not installed in {folder('library-2.0')}."
        )
