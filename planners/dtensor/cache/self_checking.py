"""A dispatch that compares some of its decisions with torch's own, and gives up what differs."""

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

from planners.dtensor.cache.plans import specs_made
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import CacheInfo
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Handler,
    Kwargs,
    carry_out,
    traits,
)
from planners.dtensor.search.cheapest import searched_exactly
from planners.dtensor.search.staying import decided_at_once
from planners.dtensor.search.tensor_meta import asked_directly

_MOST_KEPT = 4096


class DifferentDecision(UserWarning):
    """An op was decided otherwise than torch decides it; torch dispatches it from now on."""


class SelfChecking(ShapeClass):
    """All that makes dispatch quicker at once: plans, classes of shapes, and a quicker miss.

    A share of the ops is decided by torch too, by its exhaustive search on fake tensors, and the
    two are compared. An op that torch decides otherwise is done torch's way, this time and from
    then on, and is warned of. Ranks that run the same ops check the same ones.
    """

    def __init__(self, check: float = 0.0) -> None:
        super().__init__()
        self._share = check
        self._draw = random.Random(0).random
        self._by_torch_alone: set[OpOverload] = set()
        self._decided_by_torch = lru_cache(_MOST_KEPT)(self._decide_by_torch)
        self._checks = self._differences = 0
        self._counting = Lock()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take over what torch does after a miss, and before one."""
        with (
            searched_exactly(but_for=self._by_torch_alone),
            asked_directly(but_for=self._by_torch_alone),
            decided_at_once(but_for=self._by_torch_alone),
            super().installed(),
        ):
            yield

    def forget(self) -> None:
        """Forget all classes and plans, and what torch decided for comparison."""
        super().forget()
        self._decided_by_torch.cache_clear()

    def clear(self) -> None:
        """Forget all that is remembered, and start counting anew."""
        super().clear()
        self._checks = self._differences = 0

    def cache_info(self) -> CacheInfo:
        """Tell of what is kept, and of what was compared."""
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
        """Return what an op makes, by torch's decision where that is another one."""
        if traits(op).is_in_place:
            return self._compared_in_place(quick, op, args, kwargs)
        made = quick(op, args, kwargs)
        info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        expected, ours = self._expected(info.schema), self.decided(op, args, kwargs)
        if expected is None:
            return made
        if self._agrees(info.schema, OutputSharding(specs_made(made)), ours, expected):
            return made
        return carry_out(op, args, kwargs, info, expected)

    def _compared_in_place(self, quick: Handler, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Compare before the op is done, as it can be done once only."""
        try:
            info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        except Exception:  # torch refuses it in words of its own
            return quick(op, args, kwargs)
        expected, ours = self._expected(info.schema), self.decided(op, args, kwargs)
        if expected is None:
            return quick(op, args, kwargs)
        if ours is None:
            ours = PROPAGATOR.propagate_op_sharding_non_cached(info.schema)
        if self._agrees(info.schema, ours, ours, expected):
            return quick(op, args, kwargs)
        return carry_out(op, args, kwargs, info, expected)

    def _expected(self, schema: OpSchema) -> OutputSharding | None:
        """Return torch's decision; None where it has no strategy, or a size is symbolic."""
        try:
            return self._decided_by_torch(schema)
        except Exception:
            return None

    def _agrees(
        self,
        schema: OpSchema,
        made: OutputSharding,
        ours: OutputSharding | None,
        expected: OutputSharding,
    ) -> bool:
        """Whether torch decides the same; if not, warn, and leave the op to torch from now on."""
        with self._counting:
            self._checks += 1
        difference = _difference(made, schema, ours, expected)
        if difference is None:
            return True
        op = schema.op
        self._by_torch_alone.add(op)
        self.give_back(op)
        _clear_sharding_prop_cache()  # torch's cache has what was decided here after a miss
        with self._counting:
            self._differences += 1
        warnings.warn(
            f"accelerate() decides {schema} otherwise than torch: {difference}. "
            f"From now on torch dispatches {op}.",
            DifferentDecision,
            stacklevel=2,
        )
        return False

    def _decide_by_torch(self, schema: OpSchema) -> OutputSharding:
        is_new = schema.op not in self._by_torch_alone
        self._by_torch_alone.add(schema.op)
        try:
            return PROPAGATOR.propagate_op_sharding_non_cached(schema)
        finally:
            if is_new:
                self._by_torch_alone.discard(schema.op)


def _difference(
    made: OutputSharding, schema: OpSchema, ours: OutputSharding | None, expected: OutputSharding
) -> str | None:
    """Return how a result or the moves of inputs are not as torch decides; None where they are."""
    lies, should_lie = made.output_spec, expected.output_spec
    if isinstance(should_lie, list | tuple):
        should_lie = tuple(should_lie)
    if lies != should_lie:
        return f"the result is {lies} and not {should_lie}"
    if ours is None:
        return None
    moved, wanted = _wanted(schema, ours), _wanted(schema, expected)
    return None if moved == wanted else f"inputs are moved to {moved} and not to {wanted}"


def _wanted(schema: OpSchema, sharding: OutputSharding) -> list[Any]:
    """Return where a decision wants the inputs."""
    suggested = sharding.redistribute_schema if sharding.needs_redistribute else schema
    leaves = tree_leaves(suggested.args_schema)
    return [each.placements for each in leaves if isinstance(each, DTensorSpec)]
