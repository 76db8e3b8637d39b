"""End `shardbench gate` with one of its own exit codes, whatever happens."""

import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import typer

from harness.model.errors import ShardbenchError
from harness.suites.gate import HARNESS_FAILED
from shardbench.command import Command
from shardbench.options import messages

_USAGE = 2


class GateCommand(Command):
    """A command that ends with 3 where others end with 1 or 2: those are verdicts here."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments; wrong ones are no verdict."""
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:
            if getattr(error, "exit_code", None) == _USAGE:
                error.exit_code = HARNESS_FAILED  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run; every error counts as one of the harness. An interrupt stays an interrupt."""
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except (Exception, SystemExit) as error:  # rich exits where standard error is gone
            _tell(error)
        finally:
            _empty_buffers()
        raise typer.Exit(HARNESS_FAILED)


def _tell(error: BaseException) -> None:
    with suppress(Exception, SystemExit):
        if not isinstance(error, ShardbenchError):
            traceback.print_exception(error)
        messages.print(reason_of(error), style="red")


def reason_of(error: BaseException) -> str:
    """Return why the gate gave up, in one sentence."""
    if isinstance(error, ShardbenchError):
        return str(error)
    return f"The gate itself failed: {type(error).__name__}. Nothing is judged."


def write_out(text: str) -> None:
    """Write to standard output, or raise ShardbenchError; a closed pipe is no error."""
    output = sys.stdout
    if output is None:  # closed before the start
        return
    encoding = output.encoding or "utf-8"
    try:
        output.write(text.encode(encoding, "replace").decode(encoding))
        output.flush()
    except BrokenPipeError:
        _discard_the_rest(1)
    except OSError as error:
        _discard_the_rest(1)
        raise ShardbenchError(
            f"The verdict cannot be written: {error.strerror or error}."
        ) from None


def _empty_buffers() -> None:
    """Flush the buffers now: if that fails at the interpreter's end, it exits with 120."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            _discard_the_rest(descriptor)


def _discard_the_rest(descriptor: int) -> None:
    """Send the rest of a buffer to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
