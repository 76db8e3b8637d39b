"""Count the calls that a function makes, by the function making them: exact everywhere."""

import cProfile
import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType
from typing import TypeVar

R = TypeVar("R")


def count_calls(function: Callable[[], R]) -> tuple[R, dict[str, int]]:
    """Call a function, and count the calls that are made meanwhile, by the function making them.

    Python functions and built-in ones are counted alike, and each call has one maker, so that the
    counts add up to all calls. A function is called by the last part of its module's name and its
    own name in there, e.g. `annotations._get_annotated_method`. The garbage collector is off, since
    what it calls comes at other times in each run.

    Returns:
        What the function returned, and the counts; those that make none are left out.
    """
    made: Counter[str] = Counter()
    profile = cProfile.Profile()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        profile.enable()
        try:
            result = function()
        finally:
            profile.disable()
    finally:
        if was_enabled:
            gc.enable()
    for entry in profile.getstats():
        calls = sum(called.callcount for called in entry.calls or ())
        if calls and isinstance(entry.code, CodeType):
            made[_name(entry.code)] += calls
    return result, dict(made.most_common())


def _name(code: CodeType) -> str:
    path = PurePath(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return f"{module}.{name}"
