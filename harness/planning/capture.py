"""Capture a live planner's input in a file, so that every variant can plan the same problem.

from shardbench import capture

with capture("embedding", "problem.json"):
    plan = planner.plan(model, sharders)

The planner call inside the block is unchanged. Use the file with `--workload problem.json`.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.contract.abilities.captured_file import (
    CAPTURED_SUFFIXES,
    Names,
    is_captured_file,
    write_captured,
)
from harness.contract.family import load
from harness.contract.registry import load_registry
from harness.model.errors import ShardbenchError, UsageError, one_line


@contextmanager
def capture(
    family: str, path: str | Path, *, hash_names: bool = False, key: str = ""
) -> Iterator[None]:
    """Record the input of a planner call inside the block, and write it when the block ends.

    The file is written after an exception in the block too. It contains no weights and no data. A
    failure to write it is a warning and never stops the script. In a job of several processes, a
    process that plans nothing writes nothing.

    Args:
        family: the family of the planner called in the block, such as `embedding`.
        path: the file, which ends in .json or .json.gz; an existing file is replaced.
        hash_names: write hashes in place of names, so that you can share the file.
        key: the secret key of the hashes, which gives a name the same hash in several files; a
            random key if empty.

    Raises:
        UsageError: the family is unknown, cannot be captured or is not installed, or the file
            cannot be written. The checks run before the block starts.
    """
    path = Path(path)
    found = load_registry().find(family)
    capturing = load(found.abilities.capture)
    if capturing is None:
        raise UsageError(f"What family '{family}' plans cannot be captured.")
    if not is_captured_file(path.name):
        raise UsageError(f"{path} must end in {' or '.join(CAPTURED_SUFFIXES)}.")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written.")
    if missing := [name for name in found.requires if find_spec(name) is None]:
        raise UsageError(f"Family '{family}' cannot be captured: {missing[0]} is not installed.")
    names = Names(hash_names, key)
    with capturing(names) as content:
        try:
            yield
        finally:
            if problem := _problem_with(path, family, names, content):
                warnings.warn(f"{path} was not written: {problem}", stacklevel=3)


def _problem_with(
    path: Path, family: str, names: Names, content: Callable[[], Mapping[str, Any] | None]
) -> str:
    """Write the file if a planner was called; return the reason of a failure, or an empty text."""
    try:
        captured = content()
        if captured is not None:
            write_captured(path, family, names, captured)
    except OSError as error:
        return f"{error.strerror or error}."
    except ShardbenchError as error:
        return str(error)
    except Exception as error:  # the user's classes may raise anything, but the script goes on
        return f"{one_line(error)}."
    return ""
