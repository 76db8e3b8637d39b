"""TorchRec's log of calls is skipped if it has no handler; other wrappers are not."""

import functools
import logging
from unittest import mock

import pytest
from torchrec.distributed import logger

from planners.embedding.drop_in.method_log import unlogged

logs_methods = getattr(logger, "_torchrec_method_logger", None)
pytestmark = pytest.mark.skipif(logs_methods is None, reason="this torchrec logs no methods")


@pytest.mark.parametrize("handler", [logging.NullHandler(), logging.StreamHandler()])
def test_arguments_are_written_out_for_a_reader_alone(handler, monkeypatch):
    monkeypatch.setattr(logger.method_logger, "handlers", [handler])
    calls, argument = [], mock.MagicMock()

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

    assert unlogged(plan)(argument) == [argument]
    assert calls == [(argument,)]
    is_read = type(handler) is not logging.NullHandler
    assert (unlogged(plan) is plan) == is_read
    assert argument.__str__.called == is_read


def test_what_is_not_logged_stays_as_it_is():
    assert unlogged(logs_methods) is logs_methods
