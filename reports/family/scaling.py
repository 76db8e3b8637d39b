"""The growth of planning time with the size of a problem."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

LEAST_SIZES = 5  # of a series that reports show
_LEAST_FITTED = 3
_POINTS = [
    *("family", "sweep", "size_name", "variant", "size", "seconds"),
    *("projected", "stopped", "budget_s"),
]
CONFIDENCE = 0.95


class PowerLaw(NamedTuple):
    """The exponent of time over size, and the ends of its 95 % interval."""

    exponent: float
    low: float
    high: float


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to times in seconds by least squares on logarithms.

    The interval is Student's for the slope of a line. Return None with fewer than three different
    sizes, since two points leave no error to estimate, or if a value is not positive.
    """
    if len(set(sizes)) < _LEAST_FITTED or min(*sizes, *seconds) <= 0:
        return None
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(seconds, float))
    (exponent, _), covariance = np.polyfit(x, y, 1, cov=True)
    reach = stdtrit(len(x) - 2, (1 + CONFIDENCE) / 2) * math.sqrt(covariance[0, 0])
    return PowerLaw(float(exponent), float(exponent - reach), float(exponent + reach))


def without_parameter(workload: str, name: str) -> str:
    """Return a workload's id without one parameter: `w[tables=2,seed=1]` gives `w[seed=1]`."""
    base, _, parameters = workload.partition("[")
    kept = [p for p in parameters.rstrip("]").split(",") if p and p.partition("=")[0] != name]
    return f"{base}[{','.join(kept)}]" if kept else base


def sweeps(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of problems that differ only in size, if there are several sizes.

    Else, if the GPUs grow with the size, one size is the square root of both multiplied. A row per
    cell: `sweep` (the workload without its size, the topology, and the machine if there
    are several), `variant`, `size`, `seconds`, `projected`, `stopped` and `budget_s`. `seconds` is
    the median CPU time. For an over-budget cell it is the projection (`projected`), or without a
    projection the budget (`stopped`). Cells with a different decision are left out.
    """
    usable = cells[(cells["decision"] != "different") & (cells["size"] > 0)]
    measured = (usable["status"] == "ok") & (usable["cpu_s"] > 0)
    over = usable["status"] == "over budget"
    projected = over & (usable["projection_s"] > 0)
    stopped = over & ~projected & (usable["budget_s"] > 0)
    ended = usable["projection_s"].where(projected, usable["budget_s"])
    points = usable[["family", "size_name", "variant", "size", "gpus"]].assign(
        sweep=[_sweep_of(row, of_gpus=True) for row in usable.to_dict("records")],
        of_all_gpus=[_sweep_of(row, of_gpus=False) for row in usable.to_dict("records")],
        seconds=usable["cpu_s"].where(measured, ended),
        projected=projected,
        stopped=stopped,
        budget_s=usable["budget_s"].where(over),
    )[measured | projected | stopped]
    several = points.groupby(["family", "sweep"])["size"].transform("nunique") > 1
    return pd.concat([points[several], _together(points[~several])], ignore_index=True)[_POINTS]


def _together(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of problems that have more GPUs the larger they are."""
    found = [points[:0]]
    for (_, sweep), group in points.groupby(["family", "of_all_gpus"], sort=False):
        pairs = group[["size", "gpus"]].drop_duplicates().sort_values("size")
        if len(pairs) > 1 and pairs["size"].is_unique and pairs["gpus"].diff()[1:].gt(0).all():
            size_name = "sqrt(" + group["size_name"] + " * GPUs)"
            size = (group["size"] * group["gpus"]) ** 0.5
            found.append(group.assign(sweep=str(sweep), size=size, size_name=size_name))
    return pd.concat(found)


def long_series(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of the variants that have at least `LEAST_SIZES` sizes in a sweep."""
    sizes = points.groupby(["family", "sweep", "variant"])["size"].transform("nunique")
    return points[sizes >= LEAST_SIZES].reset_index(drop=True)


def _sweep_of(row: Mapping[Hashable, Any], of_gpus: bool) -> str:
    workload = without_parameter(row["workload"], _size_parameter(row))
    gpus = f":{float(row['gpus']):.0f}" if of_gpus else ""
    machine = f" on machine {row['machine']}" if row["machine"] else ""
    return f"{workload}/{row['topology']}{gpus}{machine}"


def _size_parameter(row: Mapping[Hashable, Any]) -> str:
    """Return the parameter that sets a workload's size: of the size's name, else the only number.

    The size of `optimizer[impl=single,params=20]` is counted in ops, but `params` sets it.
    """
    _, _, parameters = row["workload"].partition("[")
    named = dict(part.partition("=")[::2] for part in parameters.rstrip("]").split(",") if part)
    numbers = [name for name, value in named.items() if value.isdigit() and name != "seed"]
    if row["size_name"] in named or len(numbers) != 1:
        return str(row["size_name"])
    return str(numbers[0])


def exponents(points: pd.DataFrame) -> pd.DataFrame:
    """Fit an exponent for every variant of every sweep, to measured points only, not projections.

    A row per variant and sweep: `sizes` (the number of measured sizes), `smallest`, `largest`,
    `over_budget` (the smallest size at which a call passed its budget, or NaN), and `exponent`,
    `low`, `high`, which are NaN with fewer than three sizes.
    """
    rows = []
    keys = ["family", "sweep", "size_name", "variant"]
    for key, group in points.groupby(keys, sort=False):
        over = group["projected"].astype(bool) | group["stopped"].astype(bool)
        found = group[~over]
        fit = fit_exponent(found["size"].tolist(), found["seconds"].tolist())
        sizes = found["size"]
        found_sizes = (sizes.nunique(), sizes.min(), sizes.max(), group["size"][over].min())
        rows.append((*key, *found_sizes, *(fit or PowerLaw(math.nan, math.nan, math.nan))))
    columns = [*keys, "sizes", "smallest", "largest", "over_budget", *PowerLaw._fields]
    return pd.DataFrame(rows, columns=columns)
