"""Log messages of a command: one of each kind, with a count."""

import logging

from harness.execution.logged import LoggedOnce


def test_messages_of_one_line_of_code_are_written_once_with_a_count():
    """Libraries repeat themselves; messages of the logger `shardbench` differ by their text."""
    lines: list[str] = []
    library, own = logging.Logger("library.part"), logging.Logger("shardbench")
    handler = LoggedOnce(lines.append)
    for logger in (library, own):
        logger.addHandler(handler)
    for table in range(99):
        library.warning("No kernel for table %d.", table)
    for name in ("a", "b", "a"):
        own.warning("%s is slow.", name)
    library.warning("Another line.")
    assert lines == ["No kernel for table 0.", "a is slow.", "b is slow.", "Another line."]
    handler.close()
    counts = lines[4:]
    assert [line.startswith("There were 99 ") for line in counts] == [True, False]
    assert "library.part, line " in counts[0]
    assert counts[1].startswith("There were 2 ")
    handler.close()
    assert len(lines) == 6
