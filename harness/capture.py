"""Capture what a live planner is given, in a file that every variant can be run on.

`with capture("embedding", "problem.json"):` around a script's own call of its planner changes
nothing about that call; the file is what `--workload problem.json` takes.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.captured_file import CAPTURED_SUFFIXES, Names, is_captured_file, write_captured
from harness.errors import ShardbenchError, UsageError
from harness.registry import load_registry


@contextmanager
def capture(
    family: str, path: str | Path, *, hash_names: bool = False, key: str = ""
) -> Iterator[None]:
    """Write what the planner of `family` is given inside, when it is left, also by an error.

    The file holds no weights and no data. Once inside, a script is never stopped: where nothing
    can be written, or there is something that no file can hold, it is warned of.

    Args:
        family: whose planner is called inside, such as `embedding`.
        path: the file, which ends in .json or .json.gz; one that is there is replaced.
        hash_names: write hashes in place of names, so that the file can be given away.
        key: a secret for the hashes, so that names are called the same in several files; a random
            one where it is empty.

    Raises:
        UsageError: the family is unknown or cannot be captured, or the file could not be written.
    """
    path = Path(path)
    found = load_registry().find(family)
    if found.capturing is None:
        raise UsageError(f"What family '{family}' plans cannot be captured.")
    if not is_captured_file(path.name):
        raise UsageError(f"{path} must end in {' or '.join(CAPTURED_SUFFIXES)}.")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written.")
    names = Names(hash_names, key)
    with found.capturing(names) as content:
        try:
            yield
        finally:
            try:
                write_captured(path, family, names, content())
            except (OSError, ValueError, ShardbenchError) as error:
                warnings.warn(f"{path} was not written: {error}", stacklevel=3)
