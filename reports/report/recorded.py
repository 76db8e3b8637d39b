"""The record next to results of this machine: recorded reproductions, and disagreements."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.model.cell import Cell, Ratio
from harness.model.files import read_file
from harness.record.parts import profile_name
from harness.record.record import Record
from reports.core.formatting import factor_with_interval, percent, plural
from reports.core.frames import Results
from reports.core.page import Finding
from reports.family.data import rows_of
from reports.family.flame_links import FlamePage, FlamePair
from reports.record.claims import system_results
from reports.record.text import gpus_text, provenance_text, reproduced_text


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

    def with_claims(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of `overview` with the published figures of the record's main claims."""
        systems = system_results(self.record) if self.record else []
        claims = {found.system.name: found.claim for found in systems}
        rows = []
        for row in rows_of(table):
            claim = claims.get(row["system"])
            known = claim.claim.published if claim else None
            if claim and known:
                row |= {"published": claim.published, "published_before": known.before}
                row |= {"published_after": known.after, "published_unit": known.unit}
            rows.append(row)
        return pd.DataFrame(rows, columns=table.columns)

    def flame_pages(self, family: str) -> list[FlamePage]:
        """Return the recorded pages of flame graphs of a family."""
        if self.record is None:
            return []
        record, runs = self.record, self.record.runs()
        found = []
        for declared in record.declared.profile:
            path = record.page_of(declared)
            run = runs.get(profile_name(path))
            if declared.family == family and run and path.exists():
                *before, variant = declared.variants
                pair = FlamePair(declared.problem, variant, "".join(before))
                made = f"recorded {(run.environment.started or '')[:10]}"
                found.append(FlamePage(pair, path.name, read_file(path), made))
        return found

    def provenance(self) -> str:
        """Return the machine, versions and days of the record; "" if there is none."""
        return provenance_text(self.record) if self.record else ""

    def gpus(self) -> str:
        """Return a sentence on the GPUs with results in the record; "" if there is no record."""
        return gpus_text(self.record.folder) if self.record else ""

    def _compared(self, results: Results) -> Iterator[tuple[Cell, Ratio, Cell, Ratio]]:
        """Yield cells here and in the record, each with its ratio to the same variant."""
        recorded = self.record.cells() if self.record else {}
        for cell in results.records:
            other = recorded.get(cell.id)
            if other is None or other.against != cell.against or not (cell.ratio and other.ratio):
                continue
            if min(cell.ratio.pairs, other.ratio.pairs) >= 2:  # each has an interval
                yield cell, cell.ratio, other, other.ratio

    def agreement(self, results: Results) -> str:
        """Return a sentence on how many ratios differ from the record; "" if none can."""
        compared = [(one, two) for _, one, _, two in self._compared(results)]
        if not compared:
            return ""
        apart = [_change(one, two) for one, two in compared if _are_apart(one, two)]
        largest = f", by up to {percent(max(apart))}" if apart else ""
        return (
            f"Of {plural(len(compared), 'ratio')} that are also in the record of another day or "
            f"machine, {len(apart) or 'none'} are outside of its intervals{largest}."
        )

    def disagreements(self, results: Results) -> Iterator[Finding]:
        """Yield a finding for each ratio whose interval is apart from the recorded one."""
        for cell, ratio, other, recorded in self._compared(results):
            if not _are_apart(ratio, recorded):
                continue
            machine = other.environment.cpu or "another machine"
            yield Finding(
                "record",
                f"The record differs: `{cell.variant}` on `{cell.problem}` is {_speedup(ratio)} as "
                f"fast as `{cell.against}` here, and {_speedup(recorded)} there.",
                f"It was recorded on {machine}, {(other.environment.started or '')[:10]}.",
                family=cell.family,
            )


def _change(one: Ratio, two: Ratio) -> float:
    """Return by which share the larger of two ratios exceeds the smaller one."""
    return max(one.value, two.value) / min(one.value, two.value) - 1


def _are_apart(one: Ratio, two: Ratio) -> bool:
    return one.high < two.low or two.high < one.low


def _speedup(ratio: Ratio) -> str:
    return factor_with_interval(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
