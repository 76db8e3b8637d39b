"""Libraries in folders of their own answer requests in child processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import is_running

from harness.execution.upstream import Upstream, folder, is_ready
from harness.model.errors import ShardbenchError

NAME = "library-1.0"

LIBRARY = "RELEASE = '1.0'\n"

DRIVER = """
import os, sys, time
import library

calls = 0

def echo(request):
    global calls
    calls += 1
    return {"given": request, "calls": calls, "pid": os.getpid(), "release": library.RELEASE,
            "threads": os.environ["OMP_NUM_THREADS"], "group": os.getpgrp()}

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

def rubbish(request):
    os.write(int(sys.argv[4]), b"rubbish")
    time.sleep(60)

def sleep(request):
    time.sleep(60)

HANDLERS = {handler.__name__: handler for handler in (
    echo, fail, leave, flood, die, rubbish, sleep)}
"""

PARENT = """
from harness.execution.upstream import Upstream

upstream = Upstream({name!r}, {driver!r})
print(upstream.ask({{"kind": "echo"}})["pid"], flush=True)
upstream.ask({{"kind": "sleep"}})
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver of a library in a folder of its own, beside another file of the library's name."""
    monkeypatch.setenv("SHARDBENCH_UPSTREAMS", str(tmp_path / "upstreams"))
    folder(NAME).mkdir(parents=True)
    (folder(NAME) / "library.py").write_text(LIBRARY)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    (tmp_path / "library.py").write_text("raise ImportError('the neighbour of the driver')\n")
    return driver


@pytest.fixture
def upstream(driver: Path) -> Iterator[Upstream]:
    """The library in a child process."""
    with Upstream(NAME, driver) as upstream:
        yield upstream


def fails(upstream: Upstream, kind: str) -> str:
    with pytest.raises(ShardbenchError) as failure:
        upstream.ask({"kind": kind})
    return str(failure.value).removeprefix(f"{NAME} failed: ")


def test_one_child_answers_several_requests(upstream):
    """It belongs to the process group of its parent, and computes in one thread."""
    numbers = [number / 7 for number in range(100_000)]
    first = upstream.ask({"kind": "echo", "numbers": numbers, "name": "ähnlich"})
    second = upstream.ask({"kind": "echo"})
    assert first["given"] == {"numbers": numbers, "name": "ähnlich"}
    assert (first["release"], first["threads"], first["group"]) == ("1.0", "1", os.getpgrp())
    assert first["pid"] == second["pid"] != os.getpid()
    assert (first["calls"], second["calls"]) == (1, 2)
    upstream.close()
    assert not psutil.pid_exists(first["pid"])


def test_an_error_is_one_sentence_and_the_child_stays(upstream):
    """The next request is answered by the same child, whatever was printed."""
    before = upstream.ask({"kind": "echo"})
    assert fails(upstream, "fail") == "ValueError: first line second line."
    assert fails(upstream, "leave") == "SystemExit: no more."
    assert fails(upstream, "unknown") == "KeyError: 'unknown'."
    assert upstream.ask({"kind": "flood"}) == {"flooded": True}
    assert upstream.ask({"kind": "echo"})["pid"] == before["pid"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("die", "with exit code 3 without a result, after printing: going down"),
        ("rubbish", "sent something that is no message"),
    ],
)
def test_the_next_request_starts_another_child(upstream, kind, reason):
    """A child that ends, or sends no message, is an error."""
    before = upstream.ask({"kind": "echo"})
    assert fails(upstream, kind).endswith(f"{reason}.")
    assert not is_running(before["pid"])
    assert upstream.ask({"kind": "echo"})["calls"] == 1


def test_the_child_ends_with_its_parent_in_the_middle_of_an_answer(driver):
    """The parent is killed, so it closes nothing itself."""
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
    until = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(pid)


def test_an_upstream_with_an_interpreter_is_run_by_it(driver):
    """This process's import path is not for that interpreter."""
    python = folder(NAME) / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder(NAME)}:$PYTHONPATH" exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    (folder(NAME) / "library.py").write_text("import os\nRELEASE = os.environ['PYTHONPATH']\n")
    with Upstream(NAME, driver) as upstream:
        assert upstream.ask({"kind": "echo"})["release"] == f"{folder(NAME)}:"


def test_a_missing_upstream_or_driver_is_named(driver):
    """A library that is not installed has a folder to install it in; others fail each request."""
    assert (is_ready(NAME), is_ready("library-2.0")) == (True, False)
    with pytest.raises(ShardbenchError, match=r"^library-2.0 is not installed in /.*2.0\.$"):
        Upstream("library-2.0", driver).ask({"kind": "echo"})
    (folder(NAME) / "library.py").write_text("raise ImportError('no CUDA here')\n")
    with Upstream(NAME, driver) as upstream:
        for _ in range(2):
            assert fails(upstream, "echo") == "ImportError: no CUDA here."
