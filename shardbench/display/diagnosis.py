"""The output of `shardbench doctor`: tables, or a JSON document."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins
from rich.console import Group, RenderableType

from harness.measuring.selftest import SHORT, SelfTest
from harness.model.cell import Environment
from reports.core.formatting import plural
from reports.core.table import code, table_of, text
from reports.core.terminal import as_terminal

_LONGEST_NAME = 34
_LOADED = 0.3


@dataclass(frozen=True, slots=True)
class Skipped:
    """Unavailable variants or families, their unmet need, and a command that meets it, or ""."""

    names: list[str]
    needs: str
    command: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a machine.

    `no_gpu` is the reason if no GPU was found, `releases` has the installed releases by library,
    and `noise` counts comparisons of equal calls.
    """

    environment: Environment
    gpus: list[str]
    no_gpu: str
    releases: dict[str, list[str]]
    skipped: list[Skipped]
    noise: SelfTest

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON document."""
        fields = ("environment", "gpus", "no_gpu", "releases", "skipped")
        noise = {name: getattr(self.noise, name) for name in ("pairs", "pair_spread", "reach")}
        return {
            **{name: to_builtins(getattr(self, name)) for name in fields},
            "noise": {"call_seconds": SHORT / 1000, **noise},
        }

    def shown(self) -> RenderableType:
        """Render the diagnosis: machine, libraries, releases, and unavailable parts."""
        releases = [
            (library, ", ".join(known), f"shardbench releases {library} RELEASE")
            for library, known in self.releases.items()
        ]
        tables = [
            table_of(self._machine(), text("machine", 0), text("", 1)),
            table_of(
                self.environment.packages.items(),
                code("library", 0, _LONGEST_NAME),
                text("version", 1),
            ),
            table_of(releases, code("releases of", 0), text("are here", 1), text("for more", 2)),
            table_of(
                self.skipped,
                text("skipped", lambda skipped: "\n".join(skipped.names), _LONGEST_NAME),
                text("needs"),
                code("command that changes it", lambda skipped: skipped.command or None),
            ),
        ]
        parts: list[RenderableType] = []
        for table in tables:
            parts += [as_terminal(table), ""] if table.rows else []
        return Group(*parts[:-1]) if self.skipped else Group(*parts, "Nothing is skipped.")

    def _machine(self) -> Iterator[tuple[str, str]]:
        here, noise = self.environment, self.noise
        yield "shardbench", f"{here.shardbench}, Python {here.python}, {here.system}"
        yield "processor", f"{here.cpu}, {plural(here.cores or 1, 'core')}, {here.memory_gib:g} GiB"
        yield "GPU", ", ".join(self.gpus) or f"none: {self.no_gpu.rstrip('.')}"
        busy = "" if (here.load or 0) < _LOADED else "; it is busy, so times will be noisy"
        yield "load", f"{here.load:.2f} a core{busy}"
        yield (
            "noise",
            f"two equal calls of {SHORT:g} ms differ by {100 * noise.pair_spread:.1f} %, and "
            f"{noise.pairs:.0f} pairs give their ratio to ±{100 * noise.reach:.1f} %; "
            "see shardbench selftest",
        )
