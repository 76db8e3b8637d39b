"""`shardbench`: its commands, each a function in a module of its own, and how it ends."""

import sys
from typing import Any

import typer

from harness.model.errors import ShardbenchError, UsageError
from shardbench.commands.compare import compare
from shardbench.commands.explain import explain
from shardbench.commands.gate import gate
from shardbench.commands.list import list_command
from shardbench.commands.plan import plan
from shardbench.commands.profile import profile
from shardbench.commands.releases import releases
from shardbench.commands.report import report
from shardbench.commands.selftest import selftest_command
from shardbench.commands.sweep import sweep_command
from shardbench.commands.topology import topology_app
from shardbench.commands.workload import workload_app
from shardbench.gate_command import GateCommand
from shardbench.options import messages

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Profiles and compares the programs that decide how a model is sharded.",
)
app.command("list")(list_command)
app.command(cls=GateCommand)(gate)
app.command("selftest")(selftest_command)
app.command("sweep")(sweep_command)
app.command()(releases)
app.add_typer(workload_app, name="workload")
app.add_typer(topology_app, name="topology")
for _command in (compare, profile, report, plan, explain):
    app.command()(_command)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; exits with 2 on bad usage, with 1 if something else failed."""
    try:
        app(arguments)
    except ShardbenchError as error:
        messages.print(str(error), style="red")
        sys.exit(2 if isinstance(error, UsageError) else 1)
