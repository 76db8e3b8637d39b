"""Count calls under a profiler, by calling function; the counts are equal on every machine."""

import cProfile
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import CodeType
from typing import Any, TypeVar

R = TypeVar("R")


@contextmanager
def collection_off() -> Iterator[None]:
    """Collect garbage now, then switch the collector off inside the `with` block.

    Afterwards, undo what the block has left changed in the interpreter, for others to run in: its
    settings, and the working directory, even if it was renamed or removed.
    """
    directory = os.open(".", os.O_PATH)
    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    recursion, interval = sys.getrecursionlimit(), sys.getswitchinterval()
    functions = sys.getprofile(), sys.gettrace()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if (sys.getprofile(), sys.gettrace()) != functions:
            sys.setprofile(None)
            sys.settrace(None)
        os.fchdir(directory)
        os.close(directory)
        sys.setrecursionlimit(recursion)
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        (gc.enable if was_enabled else gc.disable)()


def profiled(function: Callable[[], R]) -> tuple[R, list[Any]]:
    """Call a function under cProfile; return its result and the profiler's entries.

    The garbage collector is off, because its calls happen at different times in each run.
    """
    profile = cProfile.Profile()
    with collection_off():
        profile.enable()
        try:
            result = function()
        finally:
            profile.disable()
    return result, profile.getstats()


def count_calls(function: Callable[[], R]) -> tuple[R, dict[str, int]]:
    """Call a function, and count the calls made until it returns, by caller.

    Calls of Python functions and of built-in functions are both counted, each for its direct
    caller. A caller is named by the last part of its module's name and its qualified name, e.g.
    `annotations._get_annotated_method`.

    Returns:
        The function's result, and the counts above 0, the largest first.
    """
    result, entries = profiled(function)
    made: Counter[str] = Counter()
    for entry in entries:
        calls = sum(called.callcount for called in entry.calls or ())
        if calls and isinstance(entry.code, CodeType):
            made[_name(entry.code)] += calls
    return result, dict(made.most_common())


def _name(code: CodeType) -> str:
    path = PurePath(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return f"{module}.{name}"
