"""Constraints to relax so that a plan fits: of as few tables as possible.

An integer programme over whole options and the memory of hosts gives a lower bound on the number of
tables, and the tables of its best solution. A search for a plan that fits then relaxes only these
tables, and one more after each failure.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel as Kernel
from torchrec.distributed.planner.constants import MIN_CW_DIM
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption

from planners.embedding.best_plan.bounds.programmes import HostProgramme
from planners.embedding.best_plan.candidates import Candidates, candidates, on_usable_ranks
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import changed
from planners.embedding.remedies.searching import Flat, Shown, in_order, without_perf
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, search_space

_KERNELS = (Kernel.FUSED_UVM_CACHING.value, Kernel.FUSED_UVM.value)
_FINER = 4  # how many times as many columns a table may be cut into
_MOST_SHARDS = 200_000  # of all options together; with more, an enumeration takes too long
_SHARE_OF_PROGRAMME, _SHARE_OF_TEST = 0.4, 0.4  # of the remaining time
_NONE = "No choice of kernels, sharding types and finer columns is enough alone."
_UNKNOWN = "Constraints: no plan was found with others."


def relaxed(
    problem: EmbeddingProblem, infeasible: bool, deadline: Deadline
) -> Iterator[Shown | str]:
    """Yield the remedy of relaxing a few tables' constraints, or a sentence if none was found.

    `infeasible` is whether it is proven that no plan fits without.
    """
    wide = _Relaxation(problem)
    if wide.too_large:
        return
    if not wide.is_new.any():
        yield "All kernels, sharding types and cuts are allowed already."
        return
    least, chosen = wide.fewest(deadline.after(_SHARE_OF_PROGRAMME))
    if math.isinf(least):
        yield _NONE
        return
    fewest = max(math.ceil(least - 1e-6), int(infeasible))
    found: Found | NotFound = NotFound(None, None, 0)
    for tables in wide.growing(chosen):
        if deadline.passed:
            break
        found = wide.any_plan(tables, deadline.after(_SHARE_OF_TEST))
        if isinstance(found, Found):
            break
    if not isinstance(found, Found):
        yield _UNKNOWN
        return
    yield wide.shown(found, fewest)


class _Relaxation:
    """A problem's options together with those that relaxed constraints add."""

    def __init__(self, problem: EmbeddingProblem) -> None:
        self._problem = problem
        self._flat = Flat.of(problem)
        self.too_large = int(self._flat.space.first_shard[-1]) > _MOST_SHARDS
        if self.too_large:
            return
        known = {_key(option): option for option in self._flat.space.options}
        options = dict(known)
        for finer in (1, _FINER):
            loose = replace(problem, constraints=_loose(problem, finer), options=None)
            enumerator = loose.enumerator(DistinctShardEnumerator)
            for option in enumerator.enumerate(problem.module, problem.sharders):
                options.setdefault(_key(option), option)
        self._flat = replace(self._flat, space=in_order(search_space([*options.values()])))
        self._space = self._flat.space
        self.is_new = np.array([_key(option) not in known for option in self._space.options])

    def fewest(self, deadline: Deadline) -> tuple[float, Ints]:
        """Return a lower bound on the number of relaxed tables, and the tables in a solution."""
        kept = [self._fitting(np.flatnonzero(self.is_new == new)) for new in (False, True)]
        options = np.sort(np.concatenate(kept))
        options = options[np.argsort(self._space.table[options], kind="stable")]
        counts = np.bincount(self._space.table[options], minlength=self._space.tables)
        if not counts.all():
            return math.inf, np.empty(0, np.int64)
        first = np.concatenate([[0], np.cumsum(counts)])
        space = without_perf(self._space)
        found = on_usable_ranks(space, self._flat.devices, options, first)
        least, solution = _FewestTables(found, self.is_new).solve(deadline)
        solution = solution[solution >= 0]
        return least, self._space.table[solution[self.is_new[solution]]]

    def _fitting(self, options: Ints) -> Ints:
        """Return the options, of these, that fit and are not dominated by others of these."""
        if not len(options):
            return options
        alone = without_perf(search_space([self._space.options[number] for number in options]))
        return np.asarray(options[candidates(alone, self._flat.devices).options])

    def growing(self, chosen: Ints) -> Iterator[Ints]:
        """Yield sets of tables: `chosen`, then one more after the other, the largest first."""
        space = self._space
        size = np.zeros(space.tables)
        np.maximum.at(size, space.table, space.option_storage.sum(axis=1))
        others = [t for t in np.argsort(-size, kind="stable").tolist() if t not in chosen]
        for count in range(len(others) + 1):
            yield np.array([*chosen.tolist(), *others[:count]], np.int64)

    def any_plan(self, tables: Ints, deadline: Deadline) -> Found | NotFound:
        """Search for a plan with relaxed constraints for these tables alone."""
        allowed = np.flatnonzero(~self.is_new | np.isin(self._space.table, tables))
        options = [self._space.options[number] for number in allowed.tolist()]
        if len({option.fqn for option in options}) < self._space.tables:
            return NotFound(None, None, 0)
        found = replace(self._flat, space=search_space(options)).any_plan(deadline)
        return replace(found, options=allowed[found.options]) if isinstance(found, Found) else found

    def shown(self, found: Found, fewest: int) -> Shown:
        """Return the remedy that a plan shows, with a sentence for each relaxed table."""
        problem, tables = self._problem, self._space.tables
        chosen = [self._space.options[number] for number in found.options.tolist()]
        new = list(compress(chosen, self.is_new[found.options]))
        constraints = {**problem.constraints}
        sentences = []
        for option in new:
            constraints[option.name], sentence = _allowing(constraints.get(option.name), option)
            sentences.append(sentence)
        kernels = problem.kernels | {option.compute_kernel for option in new}
        return Shown(
            name="tables to relax",
            unit=f"of {tables}",
            now=0,
            sufficient=len(new),
            proven=min(fewest, len(new)),
            size=len(new) / tables,
            changes=tuple(sentences),
            problem=changed(problem, constraints=constraints, kernels=kernels, options=None),
            flat=replace(self._flat, space=search_space(chosen)),
            found=replace(found, options=np.arange(tables)),
        )


class _FewestTables(HostProgramme):
    """The integer programme by host, with the number of relaxed tables as its objective."""

    def __init__(self, found: Candidates, is_new: "np.ndarray") -> None:
        super().__init__(found, 1.0)
        self._highs.changeColCost(0, 0.0)
        for option, column in self._column_of.items():
            self._highs.changeColCost(column, float(is_new[option]))


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
    constraint: ParameterConstraints | None, option: ShardingOption
) -> tuple[ParameterConstraints, str]:
    kept = copy.copy(constraint) if constraint else ParameterConstraints()
    words = []
    kernel, sharding_type = option.compute_kernel, option.sharding_type
    if kept.compute_kernels and kernel not in kept.compute_kernels:
        kept.compute_kernels = [*kept.compute_kernels, kernel]
        words.append(f"kernel {kernel}")
    if kept.sharding_types and sharding_type not in kept.sharding_types:
        kept.sharding_types = [*kept.sharding_types, sharding_type]
        words.append(f"sharding type {sharding_type}")
    columns = min(int(shard.size[1]) for shard in option.shards)
    if columns < min(kept.min_partition or MIN_CW_DIM, option.tensor.shape[1]):
        kept.min_partition = columns
        words.append(f"min_partition {columns}")
    return kept, f"Allow table {option.name} {' and '.join(words)}."
