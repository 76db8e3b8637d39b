"""Help texts: commands in groups, with whole lines, and examples that can be typed as they are."""

from typing import Any

import typer
from typer.core import TyperGroup

from shardbench.command import INTERRUPTED, what_is_left
from shardbench.options import messages

START = """\
shardbench compares the programs that decide how a model is sharded.

Three commands to try:
  shardbench list families
  shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick
  shardbench plan -w "synthetic[tables=40,seed=7]" -t dgx_h100 -n 16

shardbench --help lists all commands; shardbench doctor shows what works here.
"""

MEASURE, LOOK, PLAN, CI = "Measure", "Look", "Plan", "For CI"
OWN, MACHINE = "Your own workloads and machines", "This machine"
PANELS = (MEASURE, LOOK, PLAN, CI, OWN, MACHINE)


class GroupedCommands(TyperGroup):
    """A group that lists its commands by panel, and explains an interrupt."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an interrupt ends it with a shell's exit code, and says what was kept."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            messages.print(what_is_left(interrupt))
            raise typer.Exit(INTERRUPTED) from None

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write a section for each panel in the order of `PANELS`, with whole first sentences."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        command: Any  # typer gives it a panel; its types know of none
        for name, command in self.commands.items():
            said = command.get_short_help_str(limit=1000).removesuffix(".")
            panels.setdefault(command.rich_help_panel or "Commands", []).append((name, said))
        widest = max(map(len, self.commands))
        for title, rows in filter(all, panels.items()):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), said) for name, said in rows])


def examples(*lines: str) -> str:
    """Return the end of a help text: commands to type, with their own line breaks."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])


def examples_in(epilog: str) -> list[str]:
    """Return the commands that `examples` has laid out, each on one line."""
    lines = "\n".join(epilog.splitlines()[2:]).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines]
