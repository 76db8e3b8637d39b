"""What there is to show of a family: each view is the data of one figure and of its CSV file."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.model.cell import Bound, Cell
from reports.formatting import listing, plural
from reports.frames import DIFFERENT, Results
from reports.views.scaling import exponents, sweeps

_LADDER = [
    *("variant", "published_before", "published_after", "published_unit"),
    *("published_conditions", "published_share", "cpu_s", "ratio", "low", "high", "pairs"),
    *("outcome", "decision"),
]
_LONGEST_SLUG = 60
_IDS_OF_THE_PAGE = ("findings", "how", "environment", "sources")
_ENVIRONMENT = ("shardbench", "python", "packages", "machine", "cpu", "cores", "seed")
_NOT_RUN: dict[str, Any] = {
    **dict.fromkeys(("cpu_s", "ratio", "ratio_low", "ratio_high", "pairs"), math.nan),
    "outcome": "not run",
    "decision": "",
}


@dataclass(frozen=True)
class FamilyView:
    """One family's results, and which of its problems the figures are drawn for."""

    name: str
    cells: pd.DataFrame
    qualities: pd.DataFrame
    counters: pd.DataFrame
    phases: pd.DataFrame
    records: tuple[Cell, ...]

    @property
    def slug(self) -> str:
        """The name with only characters that ids and file names may hold; no two share one."""
        # Lower case, as there are file systems that do not tell the two apart.
        plain = re.sub(r"[^a-z0-9_-]+", "-", self.name.lower())[:_LONGEST_SLUG]
        if plain == self.name and plain not in _IDS_OF_THE_PAGE:
            return plain
        return f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def reference(self) -> str:
        """The family's reference, which the others are compared with unless it is said."""
        return str(self.cells["reference"].iloc[-1])

    @cached_property
    def against(self) -> dict[str, str]:
        """By problem the variant that the others are compared with there."""
        pairs = zip(self.cells["problem"], self.cells["against"], strict=True)
        return {str(problem): str(name) for problem, name in pairs}

    @property
    def compared_with(self) -> str:
        """A sentence that says what the ratios of this family are over."""
        others = Counter(name for name in self.against.values() if name != self.reference)
        if not others:
            return f"Everything is compared with `{self.reference}`."
        told = [f"with `{name}` on {plural(amount, 'problem')}" for name, amount in others.items()]
        if sum(others.values()) < len(self.against):
            told.append(f"with `{self.reference}` on all others")
        return f"The variants are compared {listing(told)}."

    @cached_property
    def bound(self) -> Bound | None:
        """Which quality is a proven bound on the first one, if any is."""
        found = (cell.bound for cell in self.records)
        return next(filter(None, found), None)

    @cached_property
    def variants(self) -> list[str]:
        """All variants, in the order of the results."""
        return [str(name) for name in self.cells["variant"].unique()]

    @cached_property
    def rungs(self) -> list[str]:
        """The reference, and every variant compared with it that must decide the same."""
        compared = self.cells["variant"][self.cells["against"] == self.reference].unique()
        return [str(name) for name in compared if self._root(str(name)) == self.reference]

    @cached_property
    def _models(self) -> dict[str, str]:
        """The variant that each variant must decide the same as, "" where there is none."""
        pairs = zip(self.cells["variant"], self.cells["same_as"], strict=True)
        return {str(variant): str(target) for variant, target in pairs}

    def _root(self, name: str) -> str:
        """The variant at the end of that chain, which decides for all of it."""
        seen = {name}
        while (target := self._models.get(name, "")) and target not in seen:
            seen.add(target)
            name = target
        return name

    def whose_decision(self, cell: Mapping[str, Any]) -> str:
        """Say whose decision a cell's is; "same" is that of the variant that it is compared with.

        Where another variant is the model, it is named: "as NAME".
        """
        decision = str(cell["decision"])
        if decision == "same" and self._root(cell["variant"]) != self._root(cell["against"]):
            return f"as {cell['same_as']}"
        return decision

    def on(self, problem: str) -> dict[str, dict[str, Any]]:
        """The cells of one problem, by variant."""
        found = self.cells[self.cells["problem"] == problem]
        return {str(row["variant"]): row for row in rows_of(found)}

    @cached_property
    def ladder_problem(self) -> str:
        """The problem on which most of the ladder could be compared, the largest of several."""
        compared = self.cells["ratio"].notna() & self.cells["variant"].isin(self.rungs)
        return self._best_problem(compared & (self.cells["against"] == self.reference))

    @cached_property
    def quality_problem(self) -> str:
        """The problem with most decisions of their own to compare by quality."""
        primary = self.primary_qualities
        own = primary["cell"][primary["cell"].isin(self._cells_with(decision="own"))]
        return self._best_problem(self.cells["cell"].isin(own))

    @cached_property
    def phase_problem(self) -> str:
        """The problem of the ladder, or the one with most phases where that has none."""
        if (self.phases["problem"] == self.ladder_problem).any():
            return self.ladder_problem
        return self._best_problem(self.cells["cell"].isin(self.phases["cell"]))

    def _cells_with(self, decision: str) -> "pd.Series[str]":
        return self.cells["cell"][self.cells["decision"] == decision]

    def _best_problem(self, wanted: "pd.Series[bool]") -> str:
        score = pd.DataFrame(
            {
                "wanted": wanted.astype(int),
                "ok": (self.cells["status"] == "ok").astype(int),
                "size": self.cells["size"].fillna(0.0),
            }
        ).groupby(self.cells["problem"], sort=False)
        totals = score.agg({"wanted": "sum", "ok": "sum", "size": "max"})
        ranked = totals.sort_values(["wanted", "size", "ok"], ascending=False, kind="stable")
        return str(ranked.index[0])

    @cached_property
    def primary_qualities(self) -> pd.DataFrame:
        """The first quality that the family names, a row per cell."""
        return self.qualities[self.qualities["primary"].astype(bool)]

    @cached_property
    def sweep_points(self) -> pd.DataFrame:
        """See `reports.views.scaling.sweeps`."""
        return sweeps(self.cells)

    @cached_property
    def exponents(self) -> pd.DataFrame:
        """See `reports.views.scaling.exponents`."""
        return exponents(self.sweep_points)


def families(results: Results) -> list[FamilyView]:
    """Split results by family, in the order of the results."""
    return [_family(str(name), results) for name in results.cells["family"].unique()]


def _family(name: str, results: Results) -> FamilyView:
    frames = (results.cells, results.qualities, results.counters, results.phases)
    cells, qualities, counters, phases = (
        frame[frame["family"] == name].reset_index(drop=True) for frame in frames
    )
    records = tuple(cell for cell in results.records if cell.family == name)
    return FamilyView(name, cells, qualities, counters, phases, records)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as plain dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def published_shares(claims: Iterable[Mapping[str, Any]]) -> list[float]:
    """What the claims leave of their ladder's start, rung by rung; NaN where nothing is claimed.

    A rung's share is the product of after / before over the claims so far, or after / before
    itself where the claim counts from the ladder's start again.
    """
    start: tuple[float, str] | None = None
    share = 1.0
    shares = []
    for claim in claims:
        before, after, unit = claim["claim_before"], claim["claim_after"], claim["claim_unit"]
        if not (before > 0 and after > 0):
            shares.append(math.nan)
            continue
        start = start or (before, unit)
        share = (1.0 if (before, unit) == start else share) * after / before
        shares.append(share)
    return shares


def ladder(family: FamilyView) -> pd.DataFrame:
    """The ladder on its problem: a row per rung, published figures beside the measured ratio.

    For `published_share` see `published_shares`; the reference is the start, with a share of 1,
    where any rung has a claim. Ratios are of CPU time, lower is better.
    """
    claims = {str(row["variant"]): row for row in rows_of(family.cells)}
    shares = published_shares(claims[rung] for rung in family.rungs)
    problem = family.ladder_problem
    found = family.on(problem) if family.against[problem] == family.reference else {}
    rows: list[dict[str, Any]] = []
    for rung, share in zip(family.rungs, shares, strict=True):
        cell = found.get(rung, _NOT_RUN)
        rows.append(
            {
                "variant": rung,
                "published_before": claims[rung]["claim_before"],
                "published_after": claims[rung]["claim_after"],
                "published_unit": claims[rung]["claim_unit"],
                "published_conditions": claims[rung]["claim_conditions"],
                "published_share": share,
                "cpu_s": cell["cpu_s"],
                "ratio": _ratio(cell),
                "low": cell["ratio_low"],
                "high": cell["ratio_high"],
                "pairs": cell["pairs"],
                "outcome": cell["outcome"],
                "decision": cell["decision"],
            }
        )
    table = pd.DataFrame(rows, columns=_LADDER)
    if table["published_share"].notna().any():
        unclaimed = (table["variant"] == family.reference) & table["published_share"].isna()
        table.loc[unclaimed, "published_share"] = 1.0
    return table


def _ratio(cell: Mapping[str, Any]) -> float:
    return 1.0 if cell["outcome"] == "reference" else float(cell["ratio"])


def ladder_by_problem(family: FamilyView) -> pd.DataFrame:
    """The measured ratio of every rung but the reference, a row per problem compared with it."""
    steps = [rung for rung in family.rungs if rung != family.reference]
    cells = family.cells[family.cells["against"] == family.reference]
    cells = cells[cells["variant"].isin(steps)]
    table = cells.pivot(index="problem", columns="variant", values="ratio")
    return table.reindex(index=list(cells["problem"].unique()), columns=steps)


def tradeoff(family: FamilyView) -> pd.DataFrame:
    """Time beside the first quality on one problem: a row per variant that has both.

    Variants with a different decision are left out: their time buys something else.
    """
    best = {row["cell"]: row for row in rows_of(family.primary_qualities)}
    rows = [
        {
            "variant": variant,
            "cpu_s": cell["cpu_s"],
            "ratio": _ratio(cell),
            "decision": family.whose_decision(cell),
            "quality": best[cell["cell"]]["value"],
            "bound": cell["bound"],
            "gap": cell["gap"],
            **{key: best[cell["cell"]][key] for key in ("name", "unit", "better")},
        }
        for variant, cell in family.on(family.quality_problem).items()
        if cell["cell"] in best and cell["cpu_s"] > 0 and cell["outcome"] != DIFFERENT
    ]
    columns = [
        *("variant", "cpu_s", "ratio", "decision", "quality", "bound", "gap"),
        *("name", "unit", "better"),
    ]
    return pd.DataFrame(rows, columns=columns)


def phase_times(family: FamilyView) -> pd.DataFrame:
    """Phases on one problem in CPU seconds of a timed call, a row per variant and phase.

    Shares come from one observed call, which is slower and was made at another moment, so they are
    scaled to what the timed calls took; `observed_s` is what was observed. Variants with a
    different decision are left out, as in `tradeoff`.
    """
    cells = family.cells[family.cells["problem"] == family.phase_problem]
    cells = cells[cells["outcome"] != DIFFERENT]
    phases = family.phases[family.phases["cell"].isin(cells["cell"])]
    phases = phases.rename(columns={"seconds": "observed_s"})
    observed = phases.groupby("cell")["observed_s"].transform("sum")
    # An empty column has the type of the cells' ids, which cannot be multiplied.
    whole = phases["cell"].map(_timed(cells)).astype("float64").fillna(observed)
    phases = phases.assign(seconds=phases["share"] * whole)
    return phases[["variant", "name", "seconds", "share", "observed_s"]].reset_index(drop=True)


def _timed(cells: pd.DataFrame) -> "pd.Series[float]":
    """CPU seconds of a timed call by cell, from the ratio where there is one.

    A ratio is paired, so what it makes of the reference's time is free of the machine's drift.
    """
    reference = cells.loc[cells["outcome"] == "reference", "cpu_s"]
    paired = cells["ratio"] * (reference.iloc[0] if len(reference) else math.nan)
    timed: pd.Series[float] = paired.fillna(cells["cpu_s"]).set_axis(cells["cell"])
    return timed


def counts(family: FamilyView) -> pd.DataFrame:
    """Counters on the problem of the ladder, a row per variant and a column per counter."""
    counters = family.counters[family.counters["problem"] == family.ladder_problem]
    table = counters.pivot(index="variant", columns="name", values="value")
    rows = [name for name in family.variants if name in table.index]
    return table.reindex(index=rows, columns=list(counters["name"].unique()))


def environments(results: Results) -> list[dict[str, Any]]:
    """The environments that cells were measured in, apart from load and time of start.

    Each has versions, machine and seed, and `cells`, `loads` and `starts`, lists over its cells.
    """
    found: dict[str, dict[str, Any]] = {}
    for cell in results.records:
        told = to_builtins(cell.environment)
        fixed = {name: told[name] for name in _ENVIRONMENT if name in told}
        key = json.dumps(fixed, sort_keys=True)
        held = found.setdefault(key, fixed | {"cells": [], "loads": [], "starts": []})
        held["cells"].append(str(cell.id))
        held["loads"] += [told["load"]] if "load" in told else []
        held["starts"] += [told["started"]] if "started" in told else []
    return list(found.values())
