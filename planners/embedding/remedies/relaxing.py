"""Constraints to relax so that a plan fits: of as few tables as possible.

An integer programme over whole options and the memory of hosts gives a lower bound on the number of
tables, and the changes of its best solution. A search for a plan that fits then allows only these
changes, and those of one more table after each failure. Changes that can be left out are.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel as Kernel
from torchrec.distributed.planner.constants import MIN_CW_DIM
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption

from harness.contract import Remedy
from planners.embedding.best_plan.bounds.programmes import HostProgramme
from planners.embedding.best_plan.candidates import (
    Bools,
    Candidates,
    candidates,
    on_usable_ranks,
)
from planners.embedding.decision import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import changed
from planners.embedding.remedies.searching import Flat, in_order, not_enough, remedy
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, search_space

_KERNELS = (Kernel.FUSED_UVM_CACHING.value, Kernel.FUSED_UVM.value)
_FINER = 4  # how many times as many columns a table may be cut into
_MOST_SHARDS = 200_000  # of all options together; with more, an enumeration takes too long
_SHARE_OF_PROGRAMME, _SHARE_OF_COUNT, _SHARE_OF_TEST = 0.4, 0.7, 0.3  # of the remaining time
_WORDS = {
    "compute_kernels": "kernel",
    "sharding_types": "sharding type",
    "min_partition": "min_partition",
}  # the fields of a constraint that can be relaxed, in an error's words


def relaxed(
    problem: EmbeddingProblem, flat: Flat, infeasible: bool, deadline: Deadline
) -> Iterator[Remedy[EmbeddingProblem, Plan] | str]:
    """Yield the remedy of relaxing a few tables' constraints, or a sentence if none was found.

    `flat` is the problem as arrays, `infeasible` whether it is proven that no plan fits without.
    The remedy has as few tables as possible, then few changes, then a fast plan.
    """
    if int(flat.space.first_shard[-1]) > _MOST_SHARDS:
        yield f"Other constraints: not tried, as all options have over {_MOST_SHARDS:,} shards."
        return
    wide = _Relaxation(problem, flat)
    if not wide.changes.any():
        yield "All kernels, sharding types and cuts are allowed already."
        return
    least, most = wide.fewest(deadline.after(_SHARE_OF_PROGRAMME))
    if math.isinf(least):
        yield "No choice of kernels, sharding types and finer columns is enough alone."
        return
    fewest = max(math.ceil(least - 1e-6), int(infeasible))
    plan = wide.any_plan(most, deadline.after(_SHARE_OF_TEST))
    for table in wide.largest_first:
        if isinstance(plan, Found) or deadline.passed:
            break
        most[table] = wide.changes.max()
        plan = wide.any_plan(most, deadline.after(_SHARE_OF_TEST))
    if isinstance(plan, Found):
        yield wide.shown(wide.pruned(plan, fewest, deadline), fewest, deadline)
    else:
        yield not_enough("Other constraints", 0.0, deadline)


class _Relaxation:
    """A problem's options together with those that relaxed constraints add.

    How far constraints are relaxed is an array of shape (T,): the changes allowed of each table's.
    """

    def __init__(self, problem: EmbeddingProblem, flat: Flat) -> None:
        self._problem = problem
        known = {_key(option): option for option in flat.space.options}
        options = dict(known)
        for finer in (1, _FINER):
            loose = replace(problem, constraints=_loose(problem, finer), options=None)
            enumerator = loose.enumerator(DistinctShardEnumerator)
            for option in enumerator.enumerate(problem.module, problem.sharders):
                if self._changes(option):
                    options.setdefault(_key(option), option)
        self._flat = replace(flat, space=in_order(search_space([*options.values()])))
        self._space = self._flat.space
        counts = [
            0 if _key(option) in known else len(self._changes(option))
            for option in self._space.options
        ]
        self.changes = np.array(counts)

    @property
    def largest_first(self) -> Ints:
        """The tables in the order of the memory that their largest option takes."""
        size = np.zeros(self._space.tables)
        np.maximum.at(size, self._space.table, self._space.option_storage.sum(axis=1))
        return np.argsort(-size, kind="stable")

    def _changes(self, option: ShardingOption) -> dict[str, Any]:
        """Return the fields of a table's constraint that exclude an option, with its value."""
        constraint = self._problem.constraints.get(option.name, ParameterConstraints())
        kernel, sharding_type = option.compute_kernel, option.sharding_type
        columns = int(option.shards[0].size[1])
        changes: dict[str, Any] = {}
        if constraint.compute_kernels and kernel not in constraint.compute_kernels:
            changes["compute_kernels"] = kernel
        if constraint.sharding_types and sharding_type not in constraint.sharding_types:
            changes["sharding_types"] = sharding_type
        if columns < min(constraint.min_partition or MIN_CW_DIM, option.tensor.shape[1]):
            changes["min_partition"] = columns
        return changes

    def fewest(self, deadline: Deadline) -> tuple[float, Ints]:
        """Return a lower bound on the number of relaxed tables, and the changes in a solution.

        Of the solutions with this number of tables, it is the one whose slowest host is fastest.
        """
        kept = []  # the options that fit and that none with as many changes dominates
        for count in np.unique(self.changes):
            numbers = np.flatnonzero(self.changes == count)
            alone = self._flat.with_options(numbers).space
            kept.append(numbers[candidates(alone, self._flat.devices).options])
        options = np.sort(np.concatenate(kept))
        options = options[np.argsort(self._space.table[options], kind="stable")]
        counts = np.bincount(self._space.table[options], minlength=self._space.tables)
        most = np.zeros(self._space.tables, np.int64)
        if not counts.all():
            return math.inf, most
        first = np.concatenate([[0], np.cumsum(counts)])
        usable = on_usable_ranks(self._space, self._flat.devices, options, first)
        least, solution = _FewestTables(usable, self.changes > 0).solve(deadline)
        solution = solution[solution >= 0]
        most[self._space.table[solution]] = self.changes[solution]
        return least, most

    def _allowed(self, most: Ints) -> Ints:
        return np.flatnonzero(self.changes <= most[self._space.table])

    def any_plan(self, most: Ints, deadline: Deadline) -> Found | NotFound:
        """Search for a plan with at most these changes of the tables' constraints."""
        allowed = self._allowed(most)
        if len(np.unique(self._space.table[allowed])) < self._space.tables:
            return NotFound(None, None, 0)
        plan = self._flat.with_options(allowed).any_plan(deadline)
        return replace(plan, options=allowed[plan.options]) if isinstance(plan, Found) else plan

    def _needed(self, plan: Found) -> Ints:
        most = np.zeros(self._space.tables, np.int64)
        most[self._space.table[plan.options]] = self.changes[plan.options]
        return most

    def pruned(self, plan: Found, fewest: int, deadline: Deadline) -> Found:
        """Return a plan that needs no more changes than a plan, and less if one can be left out."""
        most = self._needed(plan)
        for table in np.flatnonzero(most).tolist():
            while most[table] and most.sum() > fewest and not deadline.passed:
                fewer = most.copy()
                fewer[table] -= 1
                other = self.any_plan(fewer, deadline.after(_SHARE_OF_TEST))
                if not isinstance(other, Found):
                    break
                most, plan = self._needed(other), other
        return plan

    def shown(self, plan: Found, fewest: int, deadline: Deadline) -> Remedy[EmbeddingProblem, Plan]:
        """Return the remedy with the fastest plan that needs no more changes than a plan."""
        problem, tables = self._problem, self._space.tables
        allowed = self._allowed(self._needed(plan))
        flat = self._flat.with_options(allowed)
        plan = replace(plan, options=np.searchsorted(allowed, plan.options))
        plan = flat.best_from(plan, deadline)
        chosen = [flat.space.options[number] for number in plan.options.tolist()]
        constraints, sentences = {**problem.constraints}, []
        for option in compress(chosen, self.changes[allowed[plan.options]]):
            changes = self._changes(option)
            words = " and ".join(f"{_WORDS[field]} {value}" for field, value in changes.items())
            sentences.append(f"Allow table {option.name} {words}.")
            constraints[option.name] = _allowing(constraints.get(option.name), changes)
        kernels = problem.kernels | {option.compute_kernel for option in chosen}
        count = len(sentences)
        return remedy(
            changed(problem, constraints=constraints, kernels=kernels, options=None),
            flat,
            plan,
            ("tables to relax", f"of {tables}", 0, count, min(fewest, count)),
            *sentences,
        )


class _FewestTables(HostProgramme):
    """The integer programme by host, with the number of relaxed tables as its objective."""

    def __init__(self, usable: Candidates, is_new: Bools) -> None:
        super().__init__(usable, usable.any_rating / usable.devices.ranks)
        self._is_new = is_new
        self._new = [column for option, column in self._column_of.items() if is_new[option]]

    def solve(self, deadline: Deadline) -> tuple[float, Ints]:
        """Return a lower bound on the number of relaxed tables, and a solution's options or -1.

        Of the solutions with this number of tables, it is the one whose slowest host is fastest.
        """
        new, count = np.array(self._new, np.int32), len(self._new)
        self._highs.changeColCost(0, 0.0)
        self._highs.changeColsCost(count, new, np.ones(count))
        least, options = super().solve(deadline.after(_SHARE_OF_COUNT))
        if math.isfinite(least) and (options >= 0).all():
            relaxed_tables = float(self._is_new[options].sum())
            self._highs.addRow(0.0, relaxed_tables, count, new, np.ones(count))
            self._highs.changeColsCost(count, new, np.zeros(count))
            self._highs.changeColCost(0, 1.0)
            _, fastest = super().solve(deadline)
            options = fastest if (fastest >= 0).all() else options
        return least / self._unit, options


def _key(option: ShardingOption) -> tuple[object, ...]:
    return option.fqn, option.sharding_type, option.compute_kernel, len(option.shards)


def _loose(problem: EmbeddingProblem, finer: int) -> dict[str, ParameterConstraints]:
    """Return constraints with kernels in host memory, all sharding types, and finer columns."""
    loose = {}
    for table, given in problem.constraints.items():
        loose[table] = constraint = copy.copy(given)
        constraint.sharding_types = None
        if constraint.compute_kernels:
            constraint.compute_kernels = list(
                dict.fromkeys([*constraint.compute_kernels, *_KERNELS])
            )
        cut = constraint.min_partition or MIN_CW_DIM
        constraint.min_partition = max(cut // finer, 4) if finer > 1 else constraint.min_partition
    return loose


def _allowing(
    constraint: ParameterConstraints | None, changes: dict[str, Any]
) -> ParameterConstraints:
    """Return the constraint of a table with more allowed, as `_Relaxation` describes changes."""
    allowing = copy.copy(constraint) if constraint else ParameterConstraints()
    for field, value in changes.items():
        is_list = field != "min_partition"
        setattr(allowing, field, [*getattr(allowing, field), value] if is_list else value)
    return allowing
