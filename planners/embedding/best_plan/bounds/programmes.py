"""The linear and the integer programme that the lower bounds use, solved by HiGHS."""

import math
import os
import threading
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

INTEGER_SAFETY = 1e-5
"""Part of an integer programme's bound that is taken off: HiGHS's tolerances are 1e-6 and less."""

_UNIT = 2.0**-53  # relative error of one rounding, at most

# Relative rounding error of the price of memory, at most: a few roundings per table, because sums
# over tables are exact. It matters if options differ by only a few bytes, because prices are high.
_ROUNDING = 16 * _UNIT

_MOST_NODES = 100  # the bound rises most at the root
_INTEGER_GAP = 2e-3  # less than the gap that ends a search


def least_perf(found: Candidates) -> Floats:
    """Return the least milliseconds that each candidate adds to the sum over all ranks, (C,).

    This is `option_perf`, lowered by the largest rounding error: a rating, rounded at each shard,
    can be slightly below the exact sum, and `option_perf` can be slightly above it.
    """
    counts = np.diff(found.space.first_shard)[found.options]
    most_on_a_rank = np.maximum.reduceat(counts, found.first[:-1]).sum()
    rounded = (counts + most_on_a_rank + 8) * _UNIT
    return np.asarray(found.space.option_perf[found.options] * (1 - rounded))


class Solver(highspy.Highs):
    """A solver that prints nothing, and that a fork of the process waits for."""

    def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
        """Enable callbacks, as highspy's `__init__` does; since 1.16 that would print a banner."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()

    def run(self) -> Any:
        """Solve the programme, and return a status."""
        with _solving:
            return super().run()

    def getDualRay(self) -> Any:  # noqa: N802 - highspy's name
        """Return a status, whether there is a dual ray, and the ray; this may solve again."""
        with _solving:
            return super().getDualRay()


def run_solver(highs: Solver, deadline: Deadline) -> None:
    """Run the solver until it finishes or the deadline passes."""
    # HiGHS's time limit applies to the sum of all its runs.
    highs.setOptionValue("time_limit", highs.getRunTime() + max(deadline.left, 0.0))
    highs.run()


_solving = threading.Lock()


def _stop_workers() -> None:
    """End HiGHS's threads before a fork: a child would wait forever for threads it does not have.

    HiGHS forbids this during a solve, so it waits for one in another thread.
    """
    _solving.acquire()
    highspy.Highs.resetGlobalScheduler(True)


os.register_at_fork(
    before=_stop_workers, after_in_parent=_solving.release, after_in_child=_solving.release
)


class LinearRelaxation:
    """The linear programme: fractions of options per table, within the memory of all devices.

    HiGHS starts each solve from the basis of the previous one.
    """

    def __init__(self, found: Candidates) -> None:
        self._found = found
        self._ranks = int(found.usable.sum())
        self._least_perf = least_perf(found)
        capacity = found.devices.storage.sum(axis=0)
        used = found.space.option_storage[found.options]
        kinds = [kind for kind in range(3) if used[:, kind].sum() > 0]
        # As parts of the capacity, so that all numbers are of one size.
        self._storage = used[:, kinds] / np.maximum(capacity[kinds], 1)
        self._kinds = len(kinds)
        self._highs = Solver()
        for _ in kinds:
            self._highs.addRow(-highspy.kHighsInf, 1.0, 0, [], [])
        for _ in range(found.space.tables):
            self._highs.addRow(1.0, 1.0, 0, [], [])
        rows = np.arange(self._kinds + 1, dtype=np.int32)
        perf = found.space.option_perf[found.options].tolist()
        table = found.space.table[found.options]
        for column, storage in enumerate(self._storage):
            rows[-1] = self._kinds + table[column]
            values = np.append(storage, 1.0)
            self._highs.addCol(perf[column], 0.0, 1.0, len(rows), rows, values)

    def solve(self, limit: float, deadline: Deadline, fill: float = 1.0) -> tuple[float, Ints]:
        """Return a lower bound in milliseconds, and each table's option with the largest fraction.

        Options with shards above `limit` milliseconds are left out, and the options use at most
        `fill` of the memory, although the bound is for all of it. The bound is infinite if it is
        proven that no solution exists. Without a solution, the options are -1.
        """
        allowed = self._found.largest <= limit
        for kind in range(self._kinds):
            self._highs.changeRowBounds(kind, -highspy.kHighsInf, fill)
        self._solve(allowed, deadline)
        first = self._found.first
        none = np.full(len(first) - 1, -1)
        if not np.logical_or.reduceat(allowed, first[:-1]).all():
            return math.inf, none
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return (math.inf if self._lacks_memory(allowed) else 0.0), none
        solution = self._highs.getSolution()
        prices = self._prices()
        parts = np.where(allowed, np.array(solution.col_value), -1.0)
        chosen = [start + int(np.argmax(parts[start:end])) for start, end in pairwise(first)]
        return self._priced(allowed, prices) / self._ranks, self._found.options[chosen]

    def affordable(
        self, limit: float, allowed: npt.NDArray[np.bool_], deadline: Deadline
    ) -> npt.NDArray[np.bool_] | None:
        """Return a mask of allowed options that a plan that rates <= `limit` can use; None if none.

        Reduced-cost fixing: a plan with an option costs at least the Lagrangian bound plus the
        option's reduced cost.
        """
        self._solve(allowed, deadline)
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None if self._lacks_memory(allowed) else allowed
        prices = self._prices()
        spare = limit * (1 + 1e-12) * self._ranks - self._priced(allowed, prices)
        if spare < 0:
            return None
        priced = np.where(allowed, self._least_perf + self._storage @ prices, np.inf)
        first = self._found.first
        least = np.repeat(np.minimum.reduceat(priced, first[:-1]), np.diff(first))
        slack = 1e-9 * (np.abs(least) + prices.sum())
        return np.asarray(allowed & (priced - least <= spare + slack))

    def _solve(self, allowed: npt.NDArray[np.bool_], deadline: Deadline) -> None:
        columns = np.arange(len(allowed), dtype=np.int32)
        upper = allowed.astype(np.float64)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(upper)), upper)
        run_solver(self._highs, deadline)

    def _prices(self) -> Floats:
        """Return the solver's dual price of each kind of memory, raised to 0 if negative."""
        duals = np.array(self._highs.getSolution().row_dual[: self._kinds])
        return np.asarray(np.maximum(-duals, 0.0))

    def _lacks_memory(self, allowed: npt.NDArray[np.bool_]) -> bool:
        """Whether the solver's dual ray proves that the options need more memory than exists.

        By Farkas' lemma they do if, at the ray's prices, the cheapest options cost more than all
        memory. This checks it again, with a margin, because the solver's answer has tolerances.
        """
        _, known, ray = self._highs.getDualRay()
        if not known:
            return False
        prices = np.maximum(-np.array(ray[: self._kinds]), 0.0)
        priced = np.where(allowed, self._storage @ prices, np.inf)
        least = np.minimum.reduceat(priced, self._found.first[:-1]).sum()
        return bool(least > prices.sum() * (1 + 1e-9))

    def _priced(self, allowed: npt.NDArray[np.bool_], prices: Floats) -> float:
        """Return the Lagrangian bound on the sum over all ranks; valid for any prices >= 0."""
        priced = np.where(allowed, self._least_perf + self._storage @ prices, np.inf)
        least = math.fsum(np.minimum.reduceat(priced, self._found.first[:-1]))
        return least * (1 - _ROUNDING) - math.fsum(prices) * (1 + _ROUNDING)


@dataclass(frozen=True, slots=True)
class Part:
    """Shards of an option that one host gets together; a column counts the copies on the host."""

    column: int
    most: int  # most copies of the part on the host
    table: int
    number: int  # index among the parts of the option
    shards: Ints  # estimate numbers of the shards
    everywhere: bool  # if true, one shard on each device of the host; otherwise each on any device


class HostProgramme:
    """The integer programme: minimise z, the perf per rank of the slowest host in units of `unit`.

    Each option has a 0-1 column. For its shards, integer columns count the copies on each host, on
    any of its devices. The ranks after the last whole host count as one more host.
    """

    def __init__(self, found: Candidates, unit: float) -> None:
        self._space, self._devices, self._unit = found.space, found.devices, unit
        size, ranks = self._devices.host_ranks, self._devices.ranks
        starts = [host * size for host in range(self._devices.hosts + 1)]
        self._hosts = list(pairwise(starts if starts[-1] == ranks else [*starts, ranks]))
        self._kinds = [kind for kind in range(3) if self._space.option_storage[:, kind].any()]
        self._highs = highs = Solver()
        highs.setOptionValue("mip_max_nodes", _MOST_NODES)
        highs.setOptionValue("mip_rel_gap", _INTEGER_GAP)
        highs.setOptionValue("mip_allow_restart", False)  # after one, HiGHS may loop without nodes
        # Not the option "threads", which must be equal for all HiGHS solvers of a process.
        highs.setOptionValue("parallel", "off")
        infinity = highspy.kHighsInf
        for _ in range(self._space.tables):
            highs.addRow(1.0, 1.0, 0, [], [])
        rows = []
        for start, end in self._hosts:
            rows.append(highs.getNumRow())
            highs.addRow(-infinity, 0.0, 0, [], [])
            for _ in self._kinds:
                highs.addRow(-infinity, float(end - start), 0, [], [])
        shares = [-float(found.usable[start:end].sum()) for start, end in self._hosts]
        highs.addCol(1.0, 0.0, infinity, len(rows), np.array(rows, np.int32), shares)
        self._parts: list[list[Part]] = [[] for _ in self._hosts]
        self._column_of = {option: self._add(option) for option in found.options.tolist()}

    def _add(self, option: int) -> int:
        """Add a column for an option, and columns for its shards on hosts; return the first one."""
        space, hosts = self._space, self._devices.hosts
        shards, placement = space.estimates_of(option), space.placement[option]
        table = int(space.table[option])
        rows, values = [table], [1.0]
        if placement == Placement.UNIFORM:
            for host, (start, end) in enumerate(self._hosts):
                host_rows, host_values = self._load(host, shards[start:end])
                rows += host_rows
                values += host_values
        column = self._integer(rows, values, 1)
        if placement == Placement.UNIFORM:
            for host, (start, end) in enumerate(self._hosts):
                self._parts[host].append(Part(column, 1, table, 0, shards[start:end], True))
        elif placement == Placement.DEVICE:
            for number, (estimate, count) in enumerate(sorted(Counter(shards.tolist()).items())):
                lot = np.array([estimate])
                self._spread(column, len(self._hosts), Part(-1, count, table, number, lot, False))
        elif placement == Placement.HOSTS:
            blocks = np.split(shards, len(shards) // self._devices.host_ranks)
            for number, block in enumerate(blocks):
                self._spread(column, hosts, Part(-1, 1, table, number, block, True))
        elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
            even = bool(placement == Placement.HOST_ROWS)
            self._spread(column, hosts, Part(-1, 1, table, 0, shards, even))
        return column

    def _spread(self, column: int, hosts: int, part: Part) -> None:
        """Add columns that spread `part.most` copies over the first hosts if an option is taken."""
        row = self._highs.getNumRow()
        self._highs.addRow(0.0, 0.0, 1, np.array([column], np.int32), [-float(part.most)])
        for host in range(hosts):
            rows, values = self._load(host, part.shards)
            on_host = self._integer([row, *rows], [1.0, *values], part.most)
            self._parts[host].append(replace(part, column=on_host))

    def _load(self, host: int, shards: Ints) -> tuple[list[int], list[float]]:
        """Return a host's row indices (perf, then memory) and the shards' coefficients in them."""
        start, end = self._hosts[host]
        capacity = self._devices.storage[start:end].mean(axis=0)
        used = self._space.storage[shards].sum(axis=0)
        loads = [float(self._space.total[shards].sum()) / self._unit]
        loads += [float(used[kind] / max(capacity[kind], 1)) for kind in self._kinds]
        first = self._space.tables + host * len(loads)
        return list(range(first, first + len(loads))), loads

    def _integer(self, rows: list[int], values: list[float], most: int) -> int:
        column = int(self._highs.getNumCol())
        self._highs.addCol(0.0, 0.0, float(most), len(rows), np.array(rows, np.int32), values)
        self._highs.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        return column

    def solve(self, deadline: Deadline) -> tuple[float, Ints]:
        """Return the bound in milliseconds and the best solution's options, -1 if none is known."""
        run_solver(self._highs, deadline)
        options = np.full(self._space.tables, -1)
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return math.inf, options
        information = self._highs.getInfo()
        if information.primal_solution_status == highspy.kSolutionStatusFeasible:
            values = self._highs.getSolution().col_value
            for option, column in self._column_of.items():
                if values[column] > 0.5:
                    options[self._space.table[option]] = option
        least = max(float(information.mip_dual_bound), 0.0) * self._unit
        return least * (1 - INTEGER_SAFETY), options
