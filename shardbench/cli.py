"""The `shardbench` program: its commands, from `shardbench.commands`, and its exit codes."""

import logging
import os
import sys
from importlib import import_module
from typing import Any

import click

from harness.execution.logged import LoggedOnce
from shardbench.command import INTERRUPTED, InterruptedCommand, examples, standard_streams

# The commands by the panels of the help. Only the module of the command that runs is imported, so
# each summary stands here, too.
PANELS = {
    "Measure": {
        "compare": "Compare the variants of a family on one problem.",
        "profile": "Profile a variant, or two and their difference, as flame graphs.",
        "sweep": "Measure a suite of problems, or resume a stopped run.",
        "releases": "Compare the releases of a library on the same problems.",
        "validate": "Measure plans on this machine, and compare with their estimates.",
        "history": "Run the commits of a library on one problem, and report changes.",
        "record": "Measure the suite of a record, which docs take figures from.",
    },
    "Look": {
        "list": "List families, variants, workloads, topologies.",
        "report": "Write an offline page of results, or of changes between two.",
        "explain": "Explain a decision, and show the costs of alternatives.",
    },
    "Plan": {"plan": "Plan with the best variant, and write the plan as JSON."},
    "For CI": {"gate": "Judge decisions, counters and times by a file of expectations."},
    "Your own workloads and machines": {
        "workload": "Draw a workload's contents, or import one from other tools.",
        "topology": "Capture a topology, show its links, or find its traps.",
    },
    "This machine": {
        "doctor": "Show which parts work here, and how to install the others.",
        "calibrate": "Fit the cost estimate to this machine; write a file for --machine.",
        "selftest": "Measure which slow-downs this machine can detect.",
    },
}

# The commands whose module in `shardbench.commands` has another name.
_MODULES = {
    **dict.fromkeys(("calibrate", "validate"), "estimates"),
    **dict.fromkeys(("releases", "history"), "series"),
}

# These call planners in this process. The others call them in child processes, whose hash seed is
# fixed.
_PLAN_HERE = ("plan", "explain", "validate", "calibrate")


class Program(click.Group):
    """The group of all commands, each of which is imported when it is needed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for commands in PANELS.values():
            for name, summary in commands.items():
                self.commands[name] = click.Command(name, short_help=summary.removesuffix("."))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is none with this name."""
        if type(self.commands.get(cmd_name)) is click.Command:  # only a summary yet
            module = import_module(f"shardbench.commands.{_MODULES.get(cmd_name, cmd_name)}")
            declared = (x for x in vars(module).values() if isinstance(x, click.Command))
            self.commands[cmd_name] = next(x for x in declared if x.name == cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; on an interrupt, report the kept results and exit with 130."""
        try:
            return super().invoke(ctx)
        except InterruptedCommand as interrupt:
            click.echo(f"Interrupted: {interrupt}", err=True)
        except KeyboardInterrupt:
            click.echo("Interrupted: nothing is kept; the same command starts again.", err=True)
        raise click.exceptions.Exit(INTERRUPTED)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of the help for each panel."""
        widest = max(map(len, self.commands))
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(
                    [(name.ljust(widest), self.commands[name].short_help or "") for name in names]
                )


@click.command(
    "shardbench",
    cls=Program,
    no_args_is_help=True,
    epilog=examples(
        "shardbench list families",
        "shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick",
        'shardbench plan -w "synthetic[tables=40,seed=7]" -t dgx_h100 -n 16',
    ),
)
@click.version_option(
    package_name="shardbench", message="%(prog)s %(version)s", help="Say the version."
)
def program() -> None:
    """Profile and compare the programs that decide how a model is sharded."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print what libraries log as warnings."""
    if arguments is None and sys.argv[1:2] and sys.argv[1] in _PLAN_HERE:
        _fix_hash_seed()
    logged = LoggedOnce(lambda text: click.secho(text, fg="yellow", err=True))
    with standard_streams():
        logging.getLogger().addHandler(logged)
        try:
            program(arguments, prog_name="shardbench")
        finally:
            logging.getLogger().removeHandler(logged)


def _fix_hash_seed() -> None:
    """Start this program anew with hash seed 0, unless it has that seed already.

    TorchRec enumerates options in the order of a set of strings, so among equal plans the seed
    decides.
    """
    if sys.flags.hash_randomization:
        settings = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], settings)
