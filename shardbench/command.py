"""Common behaviour of commands: they refuse empty options and explain interrupts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from harness.model.errors import UsageError

INTERRUPTED = 130  # as a shell ends for SIGINT


class InterruptedCommand(KeyboardInterrupt):
    """An interrupt with a text on the results kept."""


@contextmanager
def resumable(results: Path, fresh: bool = False) -> Iterator[None]:
    """On an interrupt in the block, say that the results in a file are kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        how = "the same command without --fresh goes on" if fresh else "the same command goes on"
        raise InterruptedCommand(f"the results so far are kept in {results}; {how}.") from None


def what_is_left(interrupt: KeyboardInterrupt) -> str:
    """Describe in a sentence the state that an interrupted command leaves."""
    known = isinstance(interrupt, InterruptedCommand)
    return (
        f"Interrupted: {interrupt if known else 'nothing is kept; the same command starts again.'}"
    )


class Command(TyperCommand):
    """A command that refuses empty options: an unset `"$NAMES"` must not mean all variants."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises UsageError for an option that is given without a value."""
        for parameter in self.params:
            if ctx.params.get(parameter.name) == "" and _is_given(ctx, parameter):
                raise UsageError(f"{parameter.opts[0]} must not be empty.")
        return super().invoke(ctx)


def _is_given(ctx: Any, parameter: Any) -> bool:
    is_option: bool = parameter.param_type_name == "option"
    return is_option and ctx.get_parameter_source(parameter.name).name == "COMMANDLINE"
