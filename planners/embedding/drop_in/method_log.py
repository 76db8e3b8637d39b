"""Skips torchrec's log of calls if nobody reads it."""

import logging
import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def unlogged(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torchrec without the wrapper that logs its arguments and its result.

    The wrapper formats the whole module twice and the plan once, even if the log only has a
    NullHandler (1.9.2). Other wrappers stay, and so does this one if the log is read.
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
    """Return a method without the wrappers defined in a module, given by its globals."""
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
