"""Capture a live planner's input, in a file for every variant to run on.

from shardbench import capture

with capture("embedding", "problem.json"):
    plan = planner.plan(model, sharders)

Nothing about the call inside is changed; the file is what `--workload problem.json` takes.
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
    """Write the input of the planner of `family` inside the block, at its end and on errors.

    The file holds no weights and no data. Once inside, a script is never stopped: where nothing
    can be written, or there is something that no file can hold, it is warned of. In a job of
    several processes, those in which nothing is planned write nothing.

    Args:
        family: the family of the planner called inside, such as `embedding`.
        path: the file, which ends in .json or .json.gz; one that is there is replaced.
        hash_names: write hashes in place of names, so that the file can be given away.
        key: a secret for the hashes, so that a name has the same hash in several files; a random
            one where it is empty.

    Raises:
        UsageError: the family is unknown, cannot be captured or is not installed, or the file could
            not be written, which is found out before anything inside is run.
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
    """Write the file if there is anything to write; return in words what went wrong."""
    try:
        captured = content()
        if captured is not None:
            write_captured(path, family, names, captured)
    except OSError as error:
        return f"{error.strerror or error}."
    except ShardbenchError as error:
        return str(error)
    except Exception as error:  # a script goes on, whatever its own classes raise
        return f"{one_line(error)}."
    return ""
