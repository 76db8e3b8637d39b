"""What is imported once, in the process that children are forked from."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest

from harness.execution.child import Child, child, start_server
from harness.execution.messages import Failed


def tell_imported(module: str, connection: Connection) -> None:
    connection.send(Failed(str(module in sys.modules)))


def stay(connection: Connection) -> None:
    connection.send(Failed("here"))
    threading.Event().wait()


def reported(process: Child) -> str:
    message = process.receive(60)
    assert isinstance(message, Failed)
    return message.reason


def has_imported(module: str) -> bool:
    with child(tell_imported, module) as process:
        return reported(process) == "True"


@contextmanager
def one_that_stays() -> Iterator[Child]:
    with child(stay) as process:
        assert reported(process) == "here"
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
