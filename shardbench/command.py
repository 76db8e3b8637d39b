"""Behaviour of all commands: help texts, errors for empty options, and interrupts."""

import re
from collections.abc import Callable
from typing import Any

import click

from harness.model.errors import UsageError

_JSON_FILE = re.compile(r"-?|.+\.json")
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
