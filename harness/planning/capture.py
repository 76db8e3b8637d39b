"""Capture a live planner's input in a file, so that every variant can plan the same problem.

from shardbench import capture

with capture("embedding", "problem.json"):
    plan = planner.plan(model, sharders)

The planner call inside the block is unchanged. Use the file with `--workload problem.json`.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from harness.contract.abilities import load
from harness.contract.registry import load_registry
from harness.contract.workloads import (
    CAPTURED_SUFFIXES,
    Names,
    is_captured_file,
    write_captured,
)
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
    missing = [name for name in found.requires if find_spec(name) is None]
    try:
        capturing = None if missing else load(found.abilities.capture)
    except ModuleNotFoundError as error:
        missing, capturing = [str(error.name)], None
    if missing:
        raise UsageError(f"Family '{family}' cannot be captured: {missing[0]} is not installed.")
    if capturing is None:
        raise UsageError(f"What family '{family}' plans cannot be captured.")
    if not is_captured_file(path.name):
        raise UsageError(f"{path} must end in {' or '.join(CAPTURED_SUFFIXES)}.")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written.")
    names = Names(hash_names, key)
    with capturing(names) as content:
        try:
            yield
        finally:
            try:
                captured = content()
                if captured is not None:
                    write_captured(path, family, names, captured)
            except Exception as error:  # the user's classes may raise anything
                is_sentence = isinstance(error, ShardbenchError)
                reason = str(error) if is_sentence else f"{one_line(error)}."
                warnings.warn(f"{path} was not written: {reason}", stacklevel=3)
