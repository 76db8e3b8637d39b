"""A dispatch that compares some of its decisions with torch's own, and gives up what differs."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import CacheInfo
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Handler,
    Kwargs,
    carry_out,
)
from planners.dtensor.search.cheapest import searched_exactly
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
        made = quick(op, args, kwargs)
        info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        try:
            expected = self._decided_by_torch(info.schema)
        except Exception:  # torch has no strategy for it, and took it apart; or has a symbolic size
            return made
        with self._counting:
            self._checks += 1
        difference = _difference(made, info.schema, self._sharding(op, args, kwargs), expected)
        if difference is None:
            return made
        self._by_torch_alone.add(op)
        self.give_back(op)
        _clear_sharding_prop_cache()  # torch's cache has what was decided here after a miss
        with self._counting:
            self._differences += 1
        warnings.warn(
            f"accelerate() decides {info.schema} otherwise than torch: {difference}. "
            f"From now on torch dispatches {op}.",
            DifferentDecision,
            stacklevel=2,
        )
        return carry_out(op, args, kwargs, info, expected)

    def _sharding(self, op: OpOverload, args: Args, kwargs: Kwargs) -> OutputSharding | None:
        """Return what was decided here for an op; None where that was torch itself."""
        plan = self.plan_for(op, args, kwargs)
        if plan is not None and plan.sharding is not None:
            return plan.sharding
        is_by_class = plan is not None or self.knows_class(op, args, kwargs)
        return OutputSharding(None) if is_by_class else None  # which moves nothing

    def _decide_by_torch(self, schema: OpSchema) -> OutputSharding:
        is_new = schema.op not in self._by_torch_alone
        self._by_torch_alone.add(schema.op)
        try:
            return PROPAGATOR.propagate_op_sharding_non_cached(schema)
        finally:
            if is_new:
                self._by_torch_alone.discard(schema.op)


def _difference(
    made: Any, schema: OpSchema, ours: OutputSharding | None, expected: OutputSharding
) -> str | None:
    """Return how a result or the moves of inputs are not as torch decides; None where they are."""
    spec = made._spec if type(made) is DTensor else None
    if spec != expected.output_spec:
        return f"the result is {spec} and not {expected.output_spec}"
    if ours is None:
        return None
    moved, wanted = _wanted(schema, ours), _wanted(schema, expected)
    return None if moved == wanted else f"inputs are moved to {moved} and not to {wanted}"


def _wanted(schema: OpSchema, sharding: OutputSharding) -> list[Any]:
    """Return where a decision wants the inputs."""
    suggested = sharding.redistribute_schema if sharding.needs_redistribute else schema
    return [each.placements for each in suggested.args_schema if isinstance(each, DTensorSpec)]
