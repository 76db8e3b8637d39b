"""Log messages of libraries in the output of a command."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shardbench.options import warn

_OWN = "shardbench"


class _OncePerPlace(logging.Handler):
    """Prints the first message of each line of code, and counts the others like it.

    Libraries log the same for each table of each plan. Messages of the logger `shardbench` are like
    each other only if their text is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        text, place = record.getMessage(), f"{record.name}, line {record.lineno}"
        place = text if record.name == _OWN else place
        if place not in self.times:
            warn(text)
        self.times[place] += 1


@contextmanager
def logged_once() -> Iterator[None]:
    """Print messages logged inside the block once for each place, and in the end their number."""
    handler, root = _OncePerPlace(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for place, times in handler.times.items():
            if times > 1:
                warn(f"There were {times} messages of this kind: {place}")
