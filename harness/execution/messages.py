"""The messages of a child process to its parent, each encoded as one line."""

import pickle
from binascii import a2b_base64, b2a_base64
from typing import Any, Literal, get_args

from msgspec import Struct


class Stage(Struct, frozen=True):
    """The child begins stage `what`, which may take `seconds`; `subject` is often a variant."""

    what: str
    seconds: float
    subject: str = ""


class Note(Struct, frozen=True):
    """A message with any content, such as progress, sent while the work runs."""

    content: Any


class Result(Struct, frozen=True):
    """The value that the work returned."""

    value: Any


class Failed(Struct, frozen=True):
    """The work failed: `reason` is one line, and there is no result.

    A `cause` of `usage` means a UsageError, `not applicable` a NotApplicable, `memory` an exceeded
    memory limit, `time` a stage that took too long, and `error` any other failure. `stage` is the
    stage that failed after `elapsed_s` seconds, and `output` the end of the child's output.
    """

    reason: str
    cause: Literal["error", "usage", "not applicable", "memory", "time"] = "error"
    stage: Stage = Stage("", 0.0)
    elapsed_s: float = 0.0
    output: str = ""

    @property
    def subject(self) -> str:
        """The subject of the failed stage, often a variant's name; empty without one."""
        return self.stage.subject


class ForkFailedError(Exception):
    """A fork of the child failed; the child sends `failed`, which has the reason, to its parent."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


class Closed(Struct, frozen=True):
    """The last message: the work has closed its resources."""


Message = Stage | Note | Result | Failed | Closed

NO_MESSAGE = Failed("The child process sent something that is no message.")


def encode(message: Message) -> bytes:
    """Encode a message as one line, including the newline."""
    return b2a_base64(pickle.dumps(message))


def decode(line: bytes) -> Message:
    """Decode a line from a child; return `NO_MESSAGE` if it is not a message."""
    try:
        message: Message = pickle.loads(a2b_base64(line, strict_mode=True))
    except Exception:  # the work may have written anything into the pipe
        return NO_MESSAGE
    return message if isinstance(message, get_args(Message)) else NO_MESSAGE
