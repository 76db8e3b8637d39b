"""TorchRec's log of calls is skipped if it has no handler; nothing else is skipped."""

import functools
import logging

import pytest
from torchrec.distributed import logger

from planners.embedding.drop_in.method_log import unlogged

logs_methods = getattr(logger, "_torchrec_method_logger", None)
pytestmark = pytest.mark.skipif(logs_methods is None, reason="this torchrec logs no methods")


class _Argument:
    """An argument that counts its conversions to text."""

    written = 0

    def __str__(self) -> str:
        self.written += 1
        return "argument"


def _method():
    """Return a logged method inside another wrapper, and the list of that wrapper's calls."""
    calls = []

    def outer(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            calls.append(arguments)
            return function(*arguments)

        return wrapper

    @outer
    @logs_methods()
    def plan(argument):
        return [argument]

    return plan, calls


def test_arguments_are_written_out_for_a_reader_alone(monkeypatch):
    monkeypatch.setattr(logger.method_logger, "handlers", [logging.NullHandler()])  # not pytest's
    plan, calls = _method()
    argument = _Argument()
    assert unlogged(plan)(argument) == [argument]
    assert argument.written == 0
    assert calls == [(argument,)]
    plan(argument)
    assert argument.written


def test_what_is_read_stays_logged_and_what_is_not_logged_stays_as_it_is(monkeypatch):
    plan, _ = _method()
    monkeypatch.setattr(logger.method_logger, "handlers", [logging.StreamHandler()])
    assert unlogged(plan) is plan
    assert unlogged(_method) is _method
