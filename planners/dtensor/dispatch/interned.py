"""A dispatch that knows an op's inputs by identity and has compiled what to do with them.

An op on specs that it has met is one look into a table, the op on the local tensors, and the
result wrapped: no schema, no flattening, no spec built, also where torch goes through its slow
path for a number among tensors or a view of a sharded one. What torch would not decide from the
inputs alone, or would do more with, is left to torch: active dispatch modes (debugging, fake
tensors, tracing), symbolic sizes, placements with state, ops in place, with several results or
lists of tensors. An op that redistributes is carried out by torch; only its decision is kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch._ops import OpOverload

from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import CacheInfo, Dispatch
from planners.dtensor.dispatch.bounded import BoundedTable
from planners.dtensor.dispatch.construction import made_plainly
from planners.dtensor.dispatch.forms import Table, carried_out, handler_of, of_any_form
from planners.dtensor.dispatch.plans import Key, Plan, Tally, compiled
from planners.dtensor.dispatch.size import bytes_held
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Handler,
    Kwargs,
    traits,
)

MOST_PLANS = 1024
"""How many plans are kept for one op, unless told otherwise."""


class Interned(Dispatch):
    """Plans by op and by the specs of its inputs, at most `most_plans` for each op."""

    def __init__(self, most_plans: int = MOST_PLANS) -> None:
        self.tally = Tally()
        self.specs = SpecTable()
        self._most_plans = most_plans
        self._tables: dict[OpOverload, Table] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take over the ops that make one tensor of tensors given one by one."""
        handlers = {
            op: self._handler(op)
            for op in torch_path.ops_with_strategies()
            if traits(op).makes_one_tensor
        }
        with made_plainly(), self.specs.filled(), torch_path.handling(handlers):
            yield

    def clear(self) -> None:
        """Forget all plans and specs, and the tally."""
        for table in self._tables.values():
            table.clear()
        self.specs.clear()
        self.tally.hits = self.tally.misses = 0

    def cache_info(self) -> CacheInfo:
        """Tell of what is kept; the specs in the table count as bytes, not as entries."""
        kept = self._kept()
        return CacheInfo(
            self.tally.hits, self.tally.misses, len(kept), bytes_held([kept, self.specs])
        )

    def _kept(self) -> list[Any]:
        return [plan for table in self._tables.values() for plan in list(table.entries.values())]

    def _handler(self, op: OpOverload) -> Handler:
        table = self._tables.setdefault(op, BoundedTable(self._most_plans))
        return handler_of(op, table, self.tally, self._general(op, table))

    def _general(self, op: OpOverload, table: Table) -> Handler:
        """Return what handles an op for which no plan was found at once."""
        return of_any_form(op, table, self.tally, partial(self._missed, table))

    def _missed(self, table: Table, op: OpOverload, args: Args, kwargs: Kwargs, key: Key) -> Any:
        """Let torch decide an op that no plan is known for, keep the plan and carry it out."""
        self.tally.misses += 1
        plan = self.decided(op, args, kwargs)
        if plan is None:
            return torch_path.dispatch(op, args, kwargs)
        table.add(key, plan)
        return carried_out(plan, op, args, kwargs)

    def decided(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Plan | None:
        """Return the plan of what torch decides; None where torch decomposes the op instead.

        Errors are torch's own, from the way through the op that it goes itself.
        """
        info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        try:
            sharding = PROPAGATOR.propagate_op_sharding_non_cached(info.schema)
        except Exception:
            return None
        return compiled(op, args, info.schema, sharding)
