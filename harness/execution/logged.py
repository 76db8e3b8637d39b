"""A logging handler that writes once what libraries log for each table of each plan."""

import logging
from collections.abc import Callable


class LoggedOnce(logging.Handler):
    """Writes the first message that each line of code logs; of `shardbench` all that differ."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write, self._written = write, set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, unless this line of code has logged before."""
        text = record.getMessage()
        place = text if record.name == "shardbench" else f"{record.name}, line {record.lineno}"
        if place not in self._written:
            self._written.add(place)
            self._write(text)
