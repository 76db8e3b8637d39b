"""A logging handler that writes once what libraries log for each table of each plan."""

import logging
from collections import Counter
from collections.abc import Callable


class LoggedOnce(logging.Handler):
    """Writes the first message that each line of code logs; `close` writes how many there were.

    Messages of the logger `shardbench` count as the same only if their text is.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write
        self._times: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, unless this line of code has logged before."""
        text = record.getMessage()
        is_own = record.name == "shardbench"
        place = text if is_own else f"{record.name}, line {record.lineno}"
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
