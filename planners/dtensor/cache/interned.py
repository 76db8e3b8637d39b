"""A dispatch that knows an op's inputs by identity and has compiled what to do with them.

An op on specs that it has met is one look into a table, the op on the local tensors, and the
result wrapped: no schema, no flattening, no spec built. An op that it has not met is dispatched by
torch, whole, and a plan is what torch did. So torch's cache is filled as it would be without this
one, and dropping plans never changes a decision.

What torch would not decide from the inputs alone, or would do more with, is left to torch: active
dispatch modes (debugging, fake tensors, tracing), symbolic sizes, placements with state, ops with
`out`, and ops in place that change sizes. Inputs that have to be moved are moved by torch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch._ops import OpOverload

from planners.dtensor.cache.keys import Key, KeyRule
from planners.dtensor.cache.layouts import Layouts
from planners.dtensor.cache.moves import DirectMoves
from planners.dtensor.cache.plan_handlers import Table, handler_of, of_any_form
from planners.dtensor.cache.plans import BYTES_OF_MISS, OpPlan, PlanTally, plan_of
from planners.dtensor.cache.torch_hooks import following_torch, made_plainly
from planners.dtensor.cache.without_autograd import without_autograd
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import CacheInfo, Dispatch
from planners.dtensor.dispatch.handlers import Decided, by_torch, handling
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.dispatch.tables import BoundedTable, bytes_held
from planners.dtensor.dispatch.torch_path import Args, Handler, Kwargs, traits

MOST_PLANS = 1024
"""The plans that are kept for one op, at most."""

MOST_BYTES = 64 * 2**20
"""The bytes that misses add here and to torch's caches, at most; some 10,000 misses."""


class InternedDispatch(Dispatch):
    """Plans by op and by the specs of its inputs, at most `most_plans` for each op.

    All plans are forgotten, and torch's caches are cleared, before misses add up to `most_bytes`.
    Torch never forgets an entry: a program with new sizes in each step would fill its caches.
    """

    def __init__(self, most_plans: int = MOST_PLANS, most_bytes: int = MOST_BYTES) -> None:
        self.tally = PlanTally()
        self.specs = SpecTable()
        self.layouts = Layouts()
        self.moves = DirectMoves()
        self._most_plans, self._most_bytes = most_plans, most_bytes
        self._bytes_added = 0
        self._tables: dict[OpOverload, Table] = {}
        self._hand_back: Callable[[OpOverload], None] = lambda op: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take over the ops that make tensors or change them, but for those with `out`."""
        ops = [op for op in torch_path.ops_to_take_over() if traits(op).makes_tensors]
        with (
            made_plainly(),
            without_autograd(self.specs, self.layouts),
            self.moves.made_directly(),
            self.specs.filled(),
            following_torch(self.forget, self.give_back),
            handling(ops, self._handler) as self._hand_back,
        ):
            yield

    def clear(self) -> None:
        """Forget all plans, and start counting again."""
        self.forget()
        self.tally.hits = self.tally.misses = 0

    def forget(self) -> None:
        """Forget all plans, and the specs and meshes that they know."""
        self._bytes_added = 0
        self.specs.clear()
        self.layouts.clear()
        self.moves.clear()
        for table in self._tables.values():
            table.clear()

    def give_back(self, op: OpOverload) -> None:
        """Forget an op's plans, and leave the op to torch until this is installed anew."""
        self._hand_back(op)
        if op in self._tables:
            self._tables[op].clear()

    def cache_info(self) -> CacheInfo:
        """Tell of what is kept; the specs in the table count as bytes, not as entries."""
        kept = [each.entries for each in self._filled()]
        roots = [*kept, self.specs, self.layouts, self.moves]
        hits, misses = self.tally.hits, self.tally.misses
        return CacheInfo(hits, misses, sum(map(len, kept)), bytes_held(roots))

    def _filled(self) -> list[BoundedTable[Any, Any]]:
        return [each for each in list(self._tables.values()) if each.entries]

    def _handler(self, op: OpOverload) -> Handler:
        table = self._tables.setdefault(op, BoundedTable(self._most_plans))
        return handler_of(op, table, self.tally, self._general(op, table))

    def _general(self, op: OpOverload, table: Table) -> Handler:
        """Return what handles an op for which no plan was found at once."""
        rule = KeyRule.of(op)
        return of_any_form(rule, table, self.tally, partial(self._missed, rule, table))

    def _missed(
        self, rule: KeyRule, table: Table, op: OpOverload, args: Args, kwargs: Kwargs, key: Key
    ) -> Any:
        """Let torch dispatch an op that no plan is known for, and keep what it was seen to do."""
        self.tally.misses += 1
        self._make_room(BYTES_OF_MISS)  # torch remembers it, whether there is a plan or not
        decided = Decided(op)
        made = by_torch(op, args, kwargs, decided)
        if KeyRule.of(op) != rule:  # somebody has changed which arguments matter
            self.give_back(op)
            return made
        plan = plan_of(op, args, kwargs, made, decided)
        if plan is not None:
            self._keep(table, key, plan)
        return made

    def _keep(self, table: Table, key: Key, plan: OpPlan) -> None:
        self._make_room(plan.bytes_held)
        table.add(key, plan)

    def _make_room(self, more: int) -> None:
        self._bytes_added += more
        if self._bytes_added > self._most_bytes and not torch_path.is_dispatching():
            torch_path.clear_torch_caches()
            self.forget()
