"""The record next to results of this machine: recorded reproductions, and disagreements."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.model.cell import Cell
from harness.record.record import Record
from reports.core.formatting import factor_with_interval
from reports.core.frames import Results
from reports.core.page import Finding
from reports.record.claims import system_results
from reports.record.text import provenance_text, reproduced_text


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record that a report shows, or none."""

    record: Record | None

    @classmethod
    def read(cls, folder: Path | None) -> "Recorded":
        """Read the record in a folder, if there is one with results; raises UsageError."""
        if folder is None or not (folder / "suite.toml").exists():
            return cls(None)
        found = Record.read(folder)
        return cls(found if found.runs() else None)

    def reproductions(self) -> dict[str, str]:
        """Return the recorded reproduction of each system's main claim."""
        systems = system_results(self.record) if self.record else []
        return {found.system.name: reproduced_text(found.claim) for found in systems}

    def provenance(self) -> str:
        """Return the machine, versions and days of the record; "" if there is none."""
        return provenance_text(self.record) if self.record else ""

    def disagreements(self, results: Results) -> Iterator[Finding]:
        """Yield a finding for each ratio whose interval is apart from the recorded one."""
        recorded = self.record.cells() if self.record else {}
        for cell in results.records:
            other = recorded.get(cell.id)
            if other is None or cell.against != other.against or not _are_apart(cell, other):
                continue
            machine = other.environment.cpu or "another machine"
            yield Finding(
                "record",
                f"The record differs: `{cell.variant}` on `{cell.problem}` is {_speedup(cell)} as "
                f"fast as `{cell.against}` here, and {_speedup(other)} there.",
                f"It was recorded on {machine}, {(other.environment.started or '')[:10]}.",
                family=cell.family,
            )


def _are_apart(one: Cell, two: Cell) -> bool:
    a, b = one.ratio, two.ratio
    if a is None or b is None or min(a.pairs, b.pairs) < 2:
        return False
    return a.high < b.low or b.high < a.low


def _speedup(cell: Cell) -> str:
    ratio = cell.ratio
    assert ratio is not None
    return factor_with_interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
