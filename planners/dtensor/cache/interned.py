"""A dispatch that recognises the specs of an op's inputs, and caches a recipe for the op on them.

An op on known specs takes one look-up, the op on the local tensors, and wrapping of the result: no
schema, no flattening, no new spec. On new specs torch dispatches the op, and a recipe stores
torch's actions for later calls. So torch's own cache fills as usual, and deleting recipes never
changes a decision.

Torch handles all calls with decisions that depend on more than specs: calls under dispatch modes
(debugging, fake tensors, tracing), with symbolic sizes or placements with state, ops with `out`,
and in-place ops that change sizes. Torch also redistributes inputs if an op needs it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

from torch._ops import OpOverload

from planners.dtensor.cache.keys import Key, KeyRule
from planners.dtensor.cache.moves import DirectMoves
from planners.dtensor.cache.recipe_handlers import Table, handler_of, of_any_form
from planners.dtensor.cache.recipes import BYTES_OF_MISS, Recipe, RecipeTally, recipe_of
from planners.dtensor.cache.torch_hooks import following_torch, without_autograd, without_wrappers
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import BoundedTable, CacheInfo, Dispatch, bytes_held
from planners.dtensor.dispatch.handlers import ObservedDecision, by_torch, handling
from planners.dtensor.dispatch.specs import LayoutTable, SpecTable
from planners.dtensor.dispatch.torch_path import Args, Handler, Kwargs

MOST_RECIPES = 1024
"""The most recipes that are kept for one op."""

MOST_BYTES = 64 * 2**20
"""The most bytes that misses add here and to torch's caches; some 10,000 misses."""


class InternedDispatch(Dispatch):
    """A cache of recipes by op and specs of its inputs, at most `most_recipes` for each op.

    When misses have added `most_bytes` bytes, it deletes all recipes and clears torch's caches.
    Torch never deletes an entry, so new sizes in each step would fill the memory.
    """

    def __init__(self, most_recipes: int = MOST_RECIPES, most_bytes: int = MOST_BYTES) -> None:
        self.tally = RecipeTally()
        self.specs = SpecTable()
        self.layouts = LayoutTable()
        self.moves = DirectMoves()
        self._most_recipes, self._most_bytes = most_recipes, most_bytes
        self._bytes_added, self._adding = 0, Lock()
        self._tables: dict[OpOverload, Table] = {}
        self._hand_back: Callable[[OpOverload], None] = lambda op: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle all ops that return or change tensors, except those with `out`, in the context."""
        ops = [op for op in torch_path.ops_to_take_over() if torch_path.traits(op).makes_tensors]
        with (
            without_wrappers(),
            without_autograd(self.specs, self.layouts),
            self.moves.made_directly(),
            self.specs.filled(),
            following_torch(self.forget, self.give_back),
            handling(ops, self._handler) as self._hand_back,
        ):
            yield

    def clear(self) -> None:
        """Delete all recipes, and reset the counts."""
        self.forget()
        self.tally.hits = self.tally.misses = 0

    def forget(self) -> None:
        """Delete all recipes, with their specs and meshes."""
        self.specs.clear()
        self.layouts.clear()
        self.moves.clear()
        for table in list(self._tables.values()):
            table.clear()
        with self._adding:
            self._bytes_added = 0

    def give_back(self, op: OpOverload) -> None:
        """Delete an op's recipes; torch dispatches the op until the next installation."""
        self._hand_back(op)
        if op in self._tables:
            recipes = list(self._tables[op].entries.values())
            self._tables[op].clear()
            self._make_room(-sum(recipe.bytes_held for recipe in recipes))

    def cache_info(self) -> CacheInfo:
        """Return the cache's counts; tables of specs and layouts add only to the bytes."""
        entries = [table.entries for table in self._filled()]
        size = bytes_held([*entries, self.specs, self.layouts, self.moves])
        return CacheInfo(self.tally.hits, self.tally.misses, sum(map(len, entries)), size)

    def _filled(self) -> list[BoundedTable[Any, Any]]:
        return [table for table in list(self._tables.values()) if table.entries]

    def _handler(self, op: OpOverload) -> Handler:
        table = self._tables.setdefault(op, BoundedTable(self._most_recipes))
        return handler_of(op, table, self.tally, self._general(op, table))

    def _general(self, op: OpOverload, table: Table) -> Handler:
        """Return the handler for arguments of any form, the fallback of the faster handlers."""
        rule = KeyRule.of(op)
        return of_any_form(rule, table, self.tally, partial(self._missed, rule, table))

    def _missed(
        self, rule: KeyRule, table: Table, op: OpOverload, args: Args, kwargs: Kwargs, key: Key
    ) -> Any:
        """Let torch dispatch an op that has no recipe, and store a recipe of torch's actions."""
        self.tally.misses += 1
        self._make_room(BYTES_OF_MISS)  # torch caches the decision, even without a recipe
        observed = ObservedDecision(op)
        made = by_torch(op, args, kwargs, observed)
        if KeyRule.of(op) != rule:  # a new registration has changed the arguments that matter
            self.give_back(op)
            return made
        recipe = recipe_of(op, args, kwargs, made, observed)
        if recipe is not None:
            self._keep(table, key, recipe)
        return made

    def _keep(self, table: Table, key: Key, recipe: Recipe) -> None:
        dropped = table.add(key, recipe)
        self._make_room(recipe.bytes_held - (dropped.bytes_held if dropped else 0))

    def _make_room(self, more: int) -> None:
        with self._adding:
            self._bytes_added = max(0, self._bytes_added + more)
            is_too_much = self._bytes_added > self._most_bytes
        if is_too_much and not torch_path.is_dispatching():
            torch_path.clear_torch_caches()
            self.forget()
