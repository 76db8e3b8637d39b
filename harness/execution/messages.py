"""The messages of a child process to its parent, each written as one line."""

import pickle
from binascii import a2b_base64, b2a_base64
from typing import Any, Literal, get_args

from msgspec import Struct


class Stage(Struct, frozen=True):
    """The child is at stage `what` from now on, for at most `seconds`, on behalf of `subject`."""

    what: str
    seconds: float
    subject: str = ""


class Note(Struct, frozen=True):
    """A message to the listener of the work while it runs."""

    content: Any


class Result(Struct, frozen=True):
    """The value that the work returned."""

    value: Any


class Failed(Struct, frozen=True):
    """The work has no result, for a reason in one line.

    Of the causes, `usage` is a UsageError, `not applicable` a NotApplicable, `memory` a limit on
    memory and `time` a stage that took too long; `error` is everything else. `stage` is where the
    child was, for how many seconds, and `output` the last that it printed.
    """

    reason: str
    cause: Literal["error", "usage", "not applicable", "memory", "time"] = "error"
    stage: Stage = Stage("", 0.0)
    elapsed_s: float = 0.0
    output: str = ""

    @property
    def subject(self) -> str:
        """The subject that the child worked for."""
        return self.stage.subject


class ForkFailedError(Exception):
    """A fork of the child has no result: `failed` gives the reason, and the child reports it."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


class Closed(Struct, frozen=True):
    """The last message: the work has closed its resources."""


Message = Stage | Note | Result | Failed | Closed

NO_MESSAGE = Failed("The child process sent something that is no message.")


def encode(message: Message) -> bytes:
    """Write a message as one line, with its end."""
    return b2a_base64(pickle.dumps(message))


def decode(line: bytes) -> Message:
    """Read a line that a child has sent; `NO_MESSAGE` where it is none."""
    try:
        message: Message = pickle.loads(a2b_base64(line, strict_mode=True))
    except Exception:  # it may be anything that the work has written there
        return NO_MESSAGE
    return message if isinstance(message, get_args(Message)) else NO_MESSAGE
