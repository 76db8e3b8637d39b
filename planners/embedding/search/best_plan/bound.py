"""Lower bounds on the slowest rank's milliseconds, proven for all plans of the same options.

A plan that rates z uses options whose largest shard costs at most z, and its shards together cost
at most z on each rank. So z is impossible where the cheapest choice of such options, within the
memory of all devices together, costs more than z times the ranks. Only z itself and the options'
largest shards change what is allowed, which leaves a few values to try.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import highspy
import numpy as np

from planners.embedding.search.best_plan.candidates import Candidates, candidates, distinct_shards
from planners.embedding.search.deadline import Deadline
from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace

# What is taken off the integer programme's bound, as a part of it, for HiGHS's tolerances, which
# are 1e-6 and less.
_INTEGER_SAFETY = 1e-5

_UNIT = 2.0**-53  # one rounding changes a figure by this part of it at most

# What rounding changes in the prices of memory, as a part of them: a few roundings each, as the
# sums over tables are exact. Where options differ by a few bytes, prices are high.
_ROUNDING = 16 * _UNIT

_MOST_INTEGERS = 2000
_MOST_NODES = 100
_INTEGER_GAP = 2e-3


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound.

    Attributes:
        milliseconds: no plan rates less; infinite where no device can hold some table.
        options: the option of each table in the relaxed plan that the bound comes from, a good
            start for a search, shape (T,); -1 where there is none.
    """

    milliseconds: float
    options: Ints


def lower_bound(space: SearchSpace, devices: Devices) -> Bound:
    """Return the best bound that is worth its time: linear, and integer where that is small."""
    found = candidates(space, devices)
    linear = linear_bound(space, devices, found)
    if not worth_integers(devices, found) or not math.isfinite(linear.milliseconds):
        return linear
    return max(
        linear,
        integer_bound(space, devices, found, linear.milliseconds),
        key=lambda bound: bound.milliseconds,
    )


def least_perf(space: SearchSpace, found: Candidates) -> Floats:
    """Return what each candidate adds to all ranks together at least, in milliseconds, shape (C,).

    A rating is the sum of a rank's shards with every rounding on the way, and so may be a little
    less than they come to, where `option_perf` may be a little more.
    """
    counts = np.diff(space.first_shard)[found.options]
    most_on_a_rank = np.maximum.reduceat(counts, found.first[:-1]).sum()
    least: Floats = space.option_perf[found.options] * (1 - (counts + most_on_a_rank + 8) * _UNIT)
    return least


def linear_bound(
    space: SearchSpace, devices: Devices, found: Candidates, deadline: Deadline | None = None
) -> Bound:
    """Return the bound of the linear relaxation: options in parts, memory and perf in sum.

    It is computed from the dual prices of memory, by exact sums over the tables, so that neither
    the solver's tolerances enter nor rounding does. A solver that a deadline stops proves less.
    """
    if len(found.without_options):
        return Bound(math.inf, np.full(space.tables, -1))
    relaxation = LinearRelaxation(space, devices, found)
    milliseconds, options = least_possible(
        space, found, lambda limit: relaxation.solve(limit, deadline or Deadline())
    )
    return Bound(milliseconds, options)


def integer_bound(
    space: SearchSpace,
    devices: Devices,
    found: Candidates,
    at_least: float = 0.0,
    deadline: Deadline | None = None,
) -> Bound:
    """Return the bound of the relaxation that keeps options whole and each host's memory apart.

    Only the ranks within a host share their memory and their time. `at_least` is a bound that is
    known already, and saves trying less. A solver that a deadline stops proves less.
    """

    def solve(limit: float) -> tuple[float, Ints]:
        # HiGHS's tolerances are absolute: in a unit of about what is to be proven they are small.
        unit = max(limit, at_least) or 1.0
        return _solve_by_host(space, devices, found, limit, unit, deadline or Deadline())

    milliseconds, options = least_possible(space, found, solve, at_least)
    return Bound(milliseconds, options)


def worth_integers(devices: Devices, found: Candidates) -> bool:
    """Whether the integer programme is small enough to be solved in a few seconds."""
    return len(found.options) * (devices.hosts + 1) <= _MOST_INTEGERS


def least_possible(
    space: SearchSpace,
    found: Candidates,
    solve: Callable[[float], tuple[float, Ints]],
    at_least: float = 0.0,
) -> tuple[float, Ints]:
    """Return the least rating that is possible, and the choice of options that reaches it.

    `solve(z)` says what the cheapest choice of options with shards of at most z costs per rank.
    It falls with z, so the first step i of the sorted largest shards at which a rating below the
    next step is possible decides: less than that step is impossible.
    """
    steps = np.unique(space.largest_shard[found.options])
    solved: dict[int, tuple[float, Ints]] = {}

    def possible(step: int) -> bool:
        solved[step] = solve(float(steps[step]))
        return step == len(steps) - 1 or solved[step][0] < steps[step + 1]

    low = max(int(np.searchsorted(steps, at_least, side="right")) - 1, 0)
    high, stride = low, 1
    while not possible(high):
        low, high, stride = high + 1, min(high + stride, len(steps) - 1), 2 * stride
    while low < high:
        middle = (low + high) // 2
        if possible(middle):
            high = middle
        else:
            low = middle + 1
    cost, options = solved[high]
    return max(cost, float(steps[high])), options


class LinearRelaxation:
    """One option per table in parts, so that perf is least and memory suffices in sum.

    HiGHS keeps its basis from one limit to the next.
    """

    def __init__(self, space: SearchSpace, devices: Devices, found: Candidates) -> None:
        self._options = found.options
        self._first = found.first
        self._ranks = devices.ranks
        self._largest = space.largest_shard[found.options]
        self._perf = space.option_perf[found.options]
        self._least_perf = least_perf(space, found)
        capacity = _capacity(devices, 0, devices.ranks)
        used = space.option_storage[found.options]
        self._kinds = [kind for kind in range(3) if used[:, kind].sum() > 0]
        # In parts of what there is, so that all numbers are of one size.
        self._storage = used[:, self._kinds] / np.maximum(capacity[self._kinds], 1)
        self._highs = self._build()

    def _build(self) -> highspy.Highs:
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        tables = len(self._first) - 1
        for _ in self._kinds:
            highs.addRow(-highspy.kHighsInf, 1.0, 0, [], [])
        for _ in range(tables):
            highs.addRow(1.0, 1.0, 0, [], [])
        rows = np.arange(len(self._kinds), dtype=np.int32)
        table = np.repeat(np.arange(tables, dtype=np.int32), np.diff(self._first))
        for column, perf in enumerate(self._perf):
            highs.addCol(
                float(perf),
                0.0,
                1.0,
                len(rows) + 1,
                np.append(rows, len(rows) + table[column]).astype(np.int32),
                np.append(self._storage[column], 1.0),
            )
        return highs

    def solve(self, limit: float, deadline: Deadline) -> tuple[float, Ints]:
        """Return the least milliseconds per rank with shards of at most `limit`, and its options.

        Infinite where a table has no such option, or memory never suffices.
        """
        allowed = self._largest <= limit
        upper = allowed.astype(np.float64)
        columns = np.arange(len(upper), dtype=np.int32)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(upper)), upper)
        _run(self._highs, deadline)
        none = np.full(len(self._first) - 1, -1)
        if not np.logical_or.reduceat(allowed, self._first[:-1]).all():
            return math.inf, none
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return (math.inf if self._lacks_memory(allowed) else 0.0), none
        solution = self._highs.getSolution()
        prices = np.maximum(-np.array(solution.row_dual[: len(self._kinds)]), 0.0)
        parts = np.where(allowed, np.array(solution.col_value), -1.0)
        chosen = [
            int(self._options[start + np.argmax(parts[start:end])])
            for start, end in zip(self._first[:-1], self._first[1:], strict=True)
        ]
        return self._priced(allowed, prices) / self._ranks, np.array(chosen, np.int64)

    def _lacks_memory(self, allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
        """Whether all options cost more than all memory is worth, at prices that the solver knows.

        Its word alone has tolerances: what is missing must be more than rounding.
        """
        _, known, ray = self._highs.getDualRay()
        if not known:
            return False
        prices = np.maximum(-np.array(ray[: len(self._kinds)]), 0.0)
        priced = np.where(allowed, self._storage @ prices, np.inf)
        least = np.minimum.reduceat(priced, self._first[:-1]).sum()
        return bool(least > prices.sum() * (1 + 1e-9))

    def _priced(self, allowed: np.ndarray[tuple[int], np.dtype[np.bool_]], prices: Floats) -> float:
        """Return the Lagrangian bound, which holds for any prices that are not negative."""
        priced = np.where(allowed, self._least_perf + self._storage @ prices, np.inf)
        least = math.fsum(np.minimum.reduceat(priced, self._first[:-1]))
        return least * (1 - _ROUNDING) - math.fsum(prices) * (1 + _ROUNDING)


def _run(highs: highspy.Highs, deadline: Deadline) -> None:
    """Let the solver run until it is done or the deadline has passed."""
    # Its clock goes on from one run to the next.
    highs.setOptionValue("time_limit", highs.getRunTime() + max(deadline.left, 0.0))
    highs.run()


def _capacity(devices: Devices, start: int, end: int) -> Ints:
    """Return the bytes of some ranks together; one that is overfull at first takes from none."""
    capacity: Ints = np.maximum(devices.storage[start:end], 0).sum(axis=0)
    return capacity


def _solve_by_host(
    space: SearchSpace,
    devices: Devices,
    found: Candidates,
    limit: float,
    unit: float,
    deadline: Deadline,
) -> tuple[float, Ints]:
    """Bound the rating with shards of at most `limit`, options whole, memory apart by host.

    The programme counts perf in units of so many milliseconds.
    """
    allowed = found.options[space.largest_shard[found.options] <= limit]
    none = np.full(space.tables, -1)
    if len(np.unique(space.table[allowed])) < space.tables:
        return math.inf, none
    model = _HostModel(space, devices, unit)
    for option in allowed.tolist():
        model.add(option)
    return model.solve(deadline)


class _HostModel:
    """The integer programme: minimise z, the perf per rank of the slowest host in `unit`s.

    Each option is taken or not; its shards are whole numbers of shards on hosts, whatever device
    they are on there. Ranks behind the last whole host count as one more.
    """

    def __init__(self, space: SearchSpace, devices: Devices, unit: float) -> None:
        self._space, self._devices, self._unit = space, devices, unit
        starts = list(range(0, devices.hosts * devices.host_ranks + 1, devices.host_ranks))
        if starts[-1] < devices.ranks:
            starts.append(devices.ranks)
        self._hosts = list(pairwise(starts))
        self._kinds = [kind for kind in range(3) if space.option_storage[:, kind].any()]
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("mip_max_nodes", _MOST_NODES)
        self._highs.setOptionValue("mip_rel_gap", _INTEGER_GAP)
        self._highs.setOptionValue("threads", 1)
        self._taken: list[tuple[int, int]] = []
        infinity = highspy.kHighsInf
        for _ in range(space.tables):
            self._highs.addRow(1.0, 1.0, 0, [], [])
        z_rows = []
        for start, end in self._hosts:
            z_rows.append(self._highs.getNumRow())
            self._highs.addRow(-infinity, 0.0, 0, [], [])
            for _ in self._kinds:
                self._highs.addRow(-infinity, float(end - start), 0, [], [])
        ranks = [-float(end - start) for start, end in self._hosts]
        self._highs.addCol(1.0, 0.0, infinity, len(ranks), np.array(z_rows, np.int32), ranks)

    def add(self, option: int) -> None:
        """Add an option, and how many of its shards each host may have."""
        space = self._space
        shards = space.estimate[space.first_shard[option] : space.first_shard[option + 1]]
        placement = space.placement[option]
        rows, values = [int(space.table[option])], [1.0]
        if placement == Placement.UNIFORM:
            for host, (start, end) in enumerate(self._hosts):
                host_rows, host_values = self._load(host, shards[start:end])
                rows += host_rows
                values += host_values
        column = self._integer(rows, values, 1)
        self._taken.append((column, option))
        if placement == Placement.DEVICE:
            for estimate, count in distinct_shards(space, option):
                self._spread(column, count, range(len(self._hosts)), np.array([estimate]))
        elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
            self._spread(column, 1, range(self._devices.hosts), shards)
        elif placement == Placement.HOSTS:
            for block in np.split(shards, len(shards) // self._devices.host_ranks):
                self._spread(column, 1, range(self._devices.hosts), block)

    def _spread(self, column: int, count: int, hosts: range, shards: Ints) -> None:
        """Let `count` copies of these shards go to hosts where the option is taken."""
        row = self._highs.getNumRow()
        self._highs.addRow(0.0, 0.0, 1, np.array([column], np.int32), [-float(count)])
        for host in hosts:
            rows, values = self._load(host, shards)
            self._integer([row, *rows], [1.0, *values], count)

    def _load(self, host: int, shards: Ints) -> tuple[list[int], list[float]]:
        """Return the rows of a host and what the shards add there: perf, and parts of a device."""
        start, end = self._hosts[host]
        capacity = _capacity(self._devices, start, end) / (end - start)
        first = self._space.tables + host * (1 + len(self._kinds))
        loads = [float(self._space.total[shards].sum()) / self._unit]
        used = self._space.storage[shards].sum(axis=0)
        loads += [float(used[kind] / max(capacity[kind], 1)) for kind in self._kinds]
        return list(range(first, first + len(loads))), loads

    def _integer(self, rows: list[int], values: list[float], most: int) -> int:
        column = int(self._highs.getNumCol())
        self._highs.addCol(0.0, 0.0, float(most), len(rows), np.array(rows, np.int32), values)
        self._highs.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        return column

    def solve(self, deadline: Deadline) -> tuple[float, Ints]:
        """Return the bound in milliseconds, and the options of the best solution found, or -1."""
        _run(self._highs, deadline)
        options = np.full(self._space.tables, -1)
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return math.inf, options
        information = self._highs.getInfo()
        if information.primal_solution_status == highspy.kSolutionStatusFeasible:
            values = self._highs.getSolution().col_value
            for column, option in self._taken:
                if values[column] > 0.5:
                    options[self._space.table[option]] = option
        least = max(float(information.mip_dual_bound), 0.0) * self._unit
        return least * (1 - _INTEGER_SAFETY), options
