"""The parts that all commands share: help texts, empty options, interrupts, standard streams."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Never

import click

from harness.model.errors import ShardbenchError, UsageError

_JSON_FILE = re.compile(r"-?|.+\.json")
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
INTERRUPTED = 130  # the exit code of shells after SIGINT


class InterruptedCommand(KeyboardInterrupt):
    """An interrupt; its message reports the kept results and how to resume."""


class Command(click.Command):
    """A command that rejects empty options, so that an unset `"$NAMES"` never selects all.

    A bare `--json` means standard output. Only `-` and a word in .json are taken for its file, so
    that it never takes an argument; `--json=FILE` takes any name.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for option in self.params:
            if isinstance(option, click.Option) and option.show_default is None:
                option.show_default = option.default != ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line's words, after giving a bare `--json` the value `-`."""
        words = [
            "--json=-" if word == "--json" and not _JSON_FILE.fullmatch(after) else word
            for word, after in zip(args, [*args, "--"][1:], strict=True)
        ]
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises UsageError if an option's value is empty."""
        for option in self.params:
            is_empty = option.param_type_name == "option" and ctx.params.get(option.name) == ""
            source = ctx.get_parameter_source(option.name)
            if is_empty and source is click.core.ParameterSource.COMMANDLINE:
                raise UsageError(f"{option.opts[0]} must not be empty.")
        return super().invoke(ctx)


def command(
    *shown: str, cls: type[Command] = Command
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a command of a function; `shown` are example command lines.

    The function's docstring is the help, and its name without `_command` the name.
    """

    def decorated(function: Callable[..., None]) -> click.Command:
        name = function.__name__.removesuffix("_command")
        return click.command(name, cls, epilog=examples(*shown))(function)

    return decorated


def examples(*lines: str) -> str:
    """Return the epilog of a help text: example commands, one per line."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])


@contextmanager
def standard_streams() -> Iterator[None]:
    """Run the program in the block; its streams may be closed, full, or lack letters.

    An error that a user can cause is printed as one sentence; it exits with 2 for wrong usage, else
    with 1.
    """
    _prepare_streams()
    try:
        try:
            yield
        finally:
            _flush_streams()
    except ShardbenchError as error:
        _end(error)
    except OSError as error:
        _end(_not_written(error))


def _prepare_streams() -> None:
    """Open closed descriptors on the null device, and let unknown letters become question marks."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # the next file that is opened would get its number
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(descriptor, True)  # for child processes, as a standard stream
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # None, or a stream of another kind
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _flush_streams() -> None:
    """Flush both streams now, because a failed flush at interpreter exit would exit with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):  # there is nowhere left to report it
        _discard(2)
    write_out("")


def write_out(text: str) -> None:
    """Write to standard output now; a reader that has closed it is no error.

    Raise ShardbenchError if it cannot be written, e.g. because the disk is full.
    """
    if sys.stdout is None:  # it was closed before this program started
        return
    try:
        if text:  # writing nothing fails on a full disk, too
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        if error.errno != errno.EPIPE:
            raise _not_written(error) from None


def _discard(descriptor: int) -> None:
    """Redirect a file descriptor to the null device, which discards buffered output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _not_written(error: OSError) -> ShardbenchError:
    """Return the error for output that could not be written; raise any other error again."""
    if error.errno not in _NOT_WRITTEN:
        raise error
    return ShardbenchError(f"The output cannot be written: {error.strerror}.")


def _end(error: ShardbenchError) -> Never:
    with suppress(OSError):  # standard error may be full, too
        click.secho(str(error), fg="red", err=True)
    with suppress(ShardbenchError):
        _flush_streams()
    sys.exit(2 if isinstance(error, UsageError) else 1)
