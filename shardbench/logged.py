"""Log messages of libraries in the output of a command."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shardbench.options import warn

_OWN = "shardbench"


class _OncePerPlace(logging.Handler):
    """Prints the first message that each line of code logs, and counts the others.

    Libraries log the same for each table of each plan. Messages of the logger `shardbench` are
    printed unless their text is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: Counter[tuple[str, str | int]] = Counter()
        self.texts: dict[tuple[str, str | int], str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, is_own = record.getMessage(), record.name == _OWN
        place = (record.pathname, text if is_own else record.lineno)
        if place not in self.places:
            self.texts[place] = text if is_own else f"{record.name}: {text}"
            warn(self.texts[place])
        self.places[place] += 1


@contextmanager
def logged_once() -> Iterator[None]:
    """Print log messages inside the block once for each place, and in the end how many more."""
    handler, root = _OncePerPlace(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for place, times in handler.places.items():
            if times > 1:
                sentence = handler.texts[place].partition(". ")[0][:200]
                warn(f"{times} messages in all were like this one: {sentence}.")
