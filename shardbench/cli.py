"""The `shardbench` program: its commands, from `shardbench.commands`, and its exit codes."""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from harness.execution.logged import LoggedOnce
from harness.model.errors import ShardbenchError, UsageError
from shardbench.command import START, Command, GroupedCommands, examples, fix_hash_seed
from shardbench.commands.compare import compare
from shardbench.commands.doctor import doctor
from shardbench.commands.estimates import calibrate_command, validate_command
from shardbench.commands.explain import explain
from shardbench.commands.gate import GateCommand, gate
from shardbench.commands.history import history
from shardbench.commands.list import list_command
from shardbench.commands.plan import plan
from shardbench.commands.profile import profile
from shardbench.commands.record import record
from shardbench.commands.releases import releases
from shardbench.commands.report import report
from shardbench.commands.selftest import selftest_command
from shardbench.commands.sweep import sweep_command
from shardbench.commands.topology import topology_app
from shardbench.commands.workload import workload_app
from shardbench.options import messages, warn
from shardbench.streams import flush_streams, not_written, prepare_streams

app = typer.Typer(
    cls=GroupedCommands,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=examples("shardbench compare --help"),
)


def _command(panel: str, function: Callable[..., None], *shown: str, **options: Any) -> None:
    name = function.__name__.removesuffix("_command")
    options = {"cls": Command, **options}
    app.command(name, epilog=examples(*shown), rich_help_panel=panel, **options)(function)


_command(
    "Measure",
    compare,
    "shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick",
    "shardbench compare embedding -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --variants compiled,certified --against compiled",
)
_command(
    "Measure",
    profile,
    "shardbench profile embedding upstream -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --against compiled",
)
_command(
    "Measure",
    sweep_command,
    "shardbench sweep dimspec,reshard --dry-run",
    "shardbench sweep default --results results/today.jsonl",
)
_command("Measure", releases, "shardbench releases torchrec 1.5.0..1.9.2")
_command("Measure", validate_command, "shardbench validate -w merlin-tiny -t dgx_h100 -n 8")
_command(
    "Measure",
    history,
    "shardbench history torchrec v2026.01.26.00.. --repository torchrec",
    "shardbench history torchrec A..B --repository torchrec --find search_calls",
    cls=GateCommand,
)
_command("Measure", record, "shardbench record --dry-run", "shardbench record --stale")
_command("Look", list_command, "shardbench list topologies")
_command("Look", report, "shardbench report", "shardbench report before.jsonl after.jsonl")
_command("Look", explain, "shardbench explain embedding/certified -w dlrm-856 -t dgx_h100 -n 16")
_command("Plan", plan, 'shardbench plan -w "synthetic[tables=40,seed=7]" -t dgx_h100 -n 16')
_command("For CI", gate, "shardbench gate expectations.toml --markdown verdict.md", cls=GateCommand)
app.add_typer(workload_app, name="workload", rich_help_panel="Your own workloads and machines")
app.add_typer(topology_app, name="topology", rich_help_panel="Your own workloads and machines")
_command("This machine", doctor, "shardbench doctor")
_command("This machine", calibrate_command, "shardbench calibrate -t dgx_h100 -o machine.csv")
_command("This machine", selftest_command, "shardbench selftest --rounds 5 --call 0.05")

# The other commands call planners in child processes, whose hash seed is fixed.
_PLAN_HERE = ("plan", "explain", "validate", "calibrate")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"shardbench {version('shardbench')}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Profile and compare the programs that decide how a model is sharded."""
    if context.invoked_subcommand is None:
        typer.echo(START, err=True, nl=False)
        raise typer.Exit(2)  # as for any missing argument


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; exits with 2 for wrong usage, and with 1 for other errors."""
    if arguments is None and sys.argv[1:2] and sys.argv[1] in _PLAN_HERE:
        fix_hash_seed()
    prepare_streams()
    logged = LoggedOnce(warn)
    logging.getLogger().addHandler(logged)
    try:
        try:
            app(arguments)
        finally:
            logging.getLogger().removeHandler(logged)
            logged.close()
            flush_streams()
    except ShardbenchError as error:
        _end(error)
    except OSError as error:
        _end(not_written(error))


def _end(error: ShardbenchError) -> None:
    with suppress(OSError):  # standard error may be full, too
        messages.print(str(error), style="red")
    with suppress(ShardbenchError):
        flush_streams()
    sys.exit(2 if isinstance(error, UsageError) else 1)
