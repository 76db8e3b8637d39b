"""Log messages in the output of a command: one of each kind, with a count."""

import logging
from collections import Counter
from collections.abc import Callable

_OWN = "shardbench"


class LoggedOnce(logging.Handler):
    """Writes the first message that each line of code logs; `close` writes how many there were.

    Libraries log the same for each table of each plan. Messages of the logger `shardbench` count as
    the same only if their text is.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write
        self._times: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, unless this line of code has logged before."""
        text = record.getMessage()
        place = text if record.name == _OWN else f"{record.name}, line {record.lineno}"
        self._times[place] += 1
        if self._times[place] == 1:
            self._write(text)

    def close(self) -> None:
        """Write the number of messages from each line that logged more than one."""
        for place, times in self._times.items():
            if times > 1:
                self._write(f"There were {times} messages like this one: {place}")
        self._times.clear()
        super().close()
