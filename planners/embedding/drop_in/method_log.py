"""Skips torchrec's logging of method calls if no handler would write it."""

import logging
import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def unlogged(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torchrec without the wrapper that logs its arguments and its result.

    The wrapper formats the whole module twice and the plan once, even if its logger only has a
    NullHandler (1.9.2). Other wrappers are kept. If the logger has other handlers or propagates,
    the method is returned unchanged.
    """
    logger = sys.modules.get("torchrec.distributed.logger")  # not in every release
    log = getattr(logger, "method_logger", None)
    if (
        log is None
        or log.propagate
        or any(type(h) is not logging.NullHandler for h in log.handlers)
    ):
        return method
    return _without(vars(logger), method)


def _without(module: dict[str, Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method without the wrappers that a module defines, given the module's globals."""
    wrapped = getattr(method, "__wrapped__", None)
    if wrapped is None or not isinstance(method, FunctionType):
        return method
    inner = _without(module, wrapped)
    if method.__globals__ is module:
        return inner
    if inner is wrapped:
        return method
    cells = [
        CellType(inner) if cell.cell_contents is wrapped else cell
        for cell in method.__closure__ or ()
    ]
    return FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, tuple(cells)
    )
