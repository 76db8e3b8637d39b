"""What is imported once, in the process that children are forked from."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.execution.bootstrap import Report
from harness.execution.child import Child
from harness.execution.messages import Note, Result
from harness.execution.server import start_server


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
