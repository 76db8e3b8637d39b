"""A dispatch that compares some decisions with torch's; if they differ, torch takes over the op."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.utils._pytree import tree_leaves

from planners.dtensor.cache.interned import ShapeClass
from planners.dtensor.cache.recipes import specs_made
from planners.dtensor.dispatch.base import CacheInfo
from planners.dtensor.dispatch.handlers import this_thread
from planners.dtensor.dispatch.specs import copy_of
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Handler,
    Kwargs,
    carry_out,
    traits,
)
from planners.dtensor.search.dispatches import exact_misses

_MOST_KEPT = 4096


class DifferentDecision(UserWarning):
    """Torch decided an op differently, so torch dispatches this op from now on."""


class SelfChecking(ShapeClass):
    """The fastest dispatch: recipes, shape classes, and faster decisions after a miss.

    Torch also decides a share `check` of the ops, by its exhaustive search on fake tensors. If
    torch's decision differs, it is carried out, a warning names the op, and torch dispatches this
    op from then on. Ranks that run the same ops check the same calls.
    """

    def __init__(self, check: float = 0.0) -> None:
        super().__init__()
        self._share = check
        self._draw = random.Random(0).random
        self._by_torch_alone: set[OpOverload] = set()
        self._asking_torch: set[int] = set()  # threads in which torch decides, to be compared
        self._decided_by_torch = lru_cache(_MOST_KEPT)(self._decide_by_torch)
        self._checks = self._differences = 0
        self._counting = Lock()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace torch's cache, and its decisions after a miss, inside the context."""

        def is_left_to_torch(op: OpOverload) -> bool:
            return op in self._by_torch_alone or this_thread() in self._asking_torch

        with exact_misses(is_left_to_torch), super().installed():
            yield

    def forget(self) -> None:
        """Delete all shape classes, recipes, and decisions of torch for comparison."""
        super().forget()
        self._decided_by_torch.cache_clear()

    def clear(self) -> None:
        """Delete all cached decisions, and reset the counts."""
        super().clear()
        self._checks = self._differences = 0

    def cache_info(self) -> CacheInfo:
        """Return the cache's counts, with the numbers of checks and differences."""
        return super().cache_info()._replace(checks=self._checks, differences=self._differences)

    def _handler(self, op: OpOverload) -> Handler:
        quick = super()._handler(op)
        if not self._share:
            return quick
        share, draw = self._share, self._draw

        def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
            if draw() < share:
                return self._compared(quick, op, args, kwargs)
            return quick(op, args, kwargs)

        return handler

    def _compared(self, quick: Handler, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Run an op and compare its decision with torch's; if they differ, run it by torch's.

        An in-place op can run only once, so its decision is compared before it runs.
        """
        is_in_place = traits(op).is_in_place
        made = None if is_in_place else quick(op, args, kwargs)
        try:
            info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        except Exception:
            if not is_in_place:
                raise
            return quick(op, args, kwargs)  # which raises torch's own error
        # 1, 1.0 and True are equal in a schema, and may make different types of results.
        types = tuple(map(type, tree_leaves(info.schema.args_schema)))
        try:
            expected = self._decided_by_torch(info.schema, types)
        except Exception:  # torch has no strategy, or a size is symbolic
            return quick(op, args, kwargs) if is_in_place else made
        ours = self.decided(op, args, kwargs)
        if is_in_place and ours is None:
            ours = PROPAGATOR.propagate_op_sharding_non_cached(info.schema)
        output = ours.output_spec if ours and is_in_place else specs_made(made)
        difference = _difference(info.schema, output, ours, expected)
        with self._counting:
            self._checks += 1
            self._differences += difference is not None
        if difference is None:
            return quick(op, args, kwargs) if is_in_place else made
        self._by_torch_alone.add(op)
        self.give_back(op)
        _clear_sharding_prop_cache()  # torch's cache holds decisions made here after a miss
        warnings.warn(
            f"accelerate() decides {info.schema} differently from torch: {difference}. "
            f"From now on torch dispatches {op}.",
            DifferentDecision,
            stacklevel=2,
        )
        return carry_out(op, args, kwargs, info, expected)

    def _decide_by_torch(self, schema: OpSchema, _: tuple[type, ...]) -> OutputSharding:
        thread = this_thread()
        self._asking_torch.add(thread)
        try:
            return PROPAGATOR.propagate_op_sharding_non_cached(schema)
        finally:
            self._asking_torch.discard(thread)


def _difference(
    schema: OpSchema, output: Any, ours: OutputSharding | None, expected: OutputSharding
) -> str | None:
    """Return a text on the first difference from torch's decision; None if there is none."""
    if not _are_alike(output, expected.output_spec):
        return f"the result is {output} and not {expected.output_spec}"
    if ours is None:
        return None
    moved, moved_by_torch = _targets(schema, ours), _targets(schema, expected)
    if _are_alike(moved, moved_by_torch):
        return None
    return f"inputs are moved to {moved} and not to {moved_by_torch}"


def _are_alike(made: Any, wanted: Any) -> bool:
    """Whether outputs or placements are equal, apart from the state of the placements.

    A placement of a masked embedding equals only those with the same buffer for its mask. Torch's
    cache returns the same buffer for every call, but torch makes a new one for each decision.
    """
    if made == wanted:
        return True
    if isinstance(made, list | tuple) and isinstance(wanted, list | tuple):
        return len(made) == len(wanted) and all(map(_are_alike, made, wanted))
    if isinstance(made, DTensorSpec) and isinstance(wanted, DTensorSpec):
        same = copy_of(wanted, placements=made.placements, _hash=None)
        return bool(same == made) and _are_alike(made.placements, wanted.placements)
    return type(made) is type(wanted) and repr(made) == repr(wanted)


def _targets(schema: OpSchema, sharding: OutputSharding) -> list[Any]:
    """Return the placements that a decision requires for each DTensor among the inputs."""
    suggested = sharding.redistribute_schema if sharding.needs_redistribute else schema
    leaves = tree_leaves(suggested.args_schema)
    return [leaf.placements for leaf in leaves if isinstance(leaf, DTensorSpec)]
