"""TorchRec's log of calls, left out where nobody reads it."""

import logging
import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any


def unlogged(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torchrec without the wrapper that logs its arguments and its result.

    It writes the whole module out twice and the plan once, though the log has a NullHandler alone
    (1.9.2). Other wrappers stay, and so does this one where the log is read.
    """
    logger = sys.modules.get("torchrec.distributed.logger")  # no release has to have it
    log = getattr(logger, "method_logger", None)
    if (
        log is None
        or log.propagate
        or any(type(h) is not logging.NullHandler for h in log.handlers)
    ):
        return method
    return _without(vars(logger), method)


def _without(module: dict[str, Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method without the wrappers that a module, given by its names, put around it."""
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
