"""Modules that are imported once, in the server process that forks all children."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import toy

from harness.execution.bootstrap import Report
from harness.execution.child import Child
from harness.execution.messages import Note, Result
from harness.execution.server import start_server
from harness.measuring.jobs import start_server_for


def is_imported(module: str, report: Report) -> bool:
    return module in sys.modules


def stay(report: Report) -> None:
    report.send(Note("here"))
    threading.Event().wait()


def has_imported(module: str) -> bool:
    with Child(is_imported, module) as process:
        message = process.receive(60)
        assert isinstance(message, Result)
        return message.value


@contextmanager
def one_that_stays() -> Iterator[Child]:
    with Child(stay) as process:
        assert process.receive(60) == Note("here")
        yield process


@pytest.fixture(autouse=True)
def one_module() -> None:
    start_server(("wave",))


def test_children_find_what_was_imported():
    assert has_imported("wave")


def test_another_family_gets_its_modules_too():
    assert not has_imported("colorsys")
    start_server(("colorsys",))
    assert has_imported("colorsys")


def test_what_is_there_already_is_not_imported_again():
    start_server(("wave", "colorsys"))
    start_server(("colorsys",))
    assert has_imported("wave")


def test_a_child_that_runs_is_not_ended_for_it():
    with one_that_stays() as process:
        start_server(("sched",))
        assert not has_imported("sched")
        assert process.receive(0.1) is None
    start_server(("sched",))
    assert has_imported("sched")


def test_jobs_find_what_intervals_need_and_all_families():
    start_server_for([toy.TOY])
    assert has_imported("scipy.special")
    assert has_imported("planners.dimspec")


MAIN = """
import multiprocessing
from pathlib import Path

with (Path(__file__).parent / "imported").open("a") as file:
    file.write(f"{__name__}\\n")
import beside_it

def in_the_server():
    return __name__ != "__main__" and multiprocessing.current_process().name == "MainProcess"

LAST_LINE

def name(report):
    return beside_it.NAME

if __name__ == "__main__":
    from harness.execution.child import run
    from harness.execution.messages import Stage

    for _ in range(2):
        print(run(name, first=Stage("importing", 60.0)))
"""


@pytest.mark.parametrize(
    ("last", "times"),
    [("", 1), ("if in_the_server(): raise SystemExit('only a child has what it needs')", 3)],
)
def test_the_main_module_is_imported_once_or_by_each_child(tmp_path: Path, last: str, times: int):
    (tmp_path / "beside_it.py").write_text("NAME = 'from the folder of the script'\n")
    script = tmp_path / "script.py"
    script.write_text(MAIN.replace("LAST_LINE", last))
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("from the folder of the script\n" * 2, "")
    assert (tmp_path / "imported").read_text().split() == ["__main__", *["__mp_main__"] * times]
