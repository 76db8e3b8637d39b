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
from operator import is_
from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.cache.keys import Key, LeftToTorch, Specs, reader
from planners.dtensor.cache.moves import direct_moves
from planners.dtensor.cache.recipes import Recipe, adopt_all, moved_args, recipe_of, result_of
from planners.dtensor.cache.straight import straight_handler
from planners.dtensor.cache.torch_hooks import following_torch, without_autograd
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import BoundedTable, CacheInfo, Dispatch, bytes_held
from planners.dtensor.dispatch.handlers import ObservedDecision, by_torch, handling
from planners.dtensor.dispatch.specs import SpecTable, is_plain, layout_of
from planners.dtensor.dispatch.torch_path import (
    Args,
    Handler,
    Kwargs,
    has_torch_function,
    traits,
)

MOST_ENTRIES = 1024
"""The most recipes that are kept for one op, and the most shape classes."""

MOST_MISSES = 10_000
"""The misses after which all caches are cleared: a miss adds about 6 KiB to torch's and ours."""

Table = BoundedTable[Key, Recipe]


class InternedDispatch(Dispatch):
    """A cache of recipes by op and specs of its inputs, at most `most_entries` for each op.

    After `most_misses` misses it deletes all recipes and clears torch's caches. Torch never deletes
    an entry, so new sizes in each step would fill the memory.
    """

    def __init__(self, most_entries: int = MOST_ENTRIES, most_misses: int = MOST_MISSES) -> None:
        self.hits = self.misses = 0
        self._specs = SpecTable()
        self._most_entries, self._most_misses = most_entries, most_misses
        self._misses_kept = 0  # in torch's caches
        self._tables: dict[OpOverload, Table] = {}
        self._hand_back: Callable[[OpOverload], None] = lambda op: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle all ops that return or change tensors, except those with `out`, in the context."""
        ops = [op for op in torch_path.ops_to_take_over() if torch_path.traits(op).makes_tensors]
        with (
            without_autograd(),
            direct_moves(),
            self._specs.filled(),
            following_torch(self.forget, self.give_back),
            handling(ops, self._handler) as self._hand_back,
        ):
            yield

    def clear(self) -> None:
        """Delete all recipes, and reset the counts."""
        self.forget()
        self.hits = self.misses = 0

    def forget(self) -> None:
        """Delete all recipes, with their specs and meshes."""
        self._specs.clear()
        layout_of.cache_clear()  # keeps meshes alive
        for table in list(self._tables.values()):
            table.clear()
        self._misses_kept = 0

    def give_back(self, op: OpOverload) -> None:
        """Delete an op's recipes; torch dispatches the op until the next installation."""
        self._hand_back(op)
        if op in self._tables:
            self._tables[op].clear()

    def cache_info(self) -> CacheInfo:
        """Return the cache's counts; the table of specs adds only to the bytes."""
        entries = [table.entries for table in self._filled()]
        size = bytes_held([*entries, self._specs])
        return CacheInfo(self.hits, self.misses, sum(map(len, entries)), size)

    def _filled(self) -> list[BoundedTable[Any, Any]]:
        return [table for table in list(self._tables.values()) if table.entries]

    def _handler(self, op: OpOverload) -> Handler:
        """Return a handler that carries out the op by its recipe, and makes recipes on misses."""
        table = self._tables.setdefault(op, BoundedTable(self._most_entries))
        read, recipes, compute = reader(op), table.entries, op._op

        def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
            try:
                key, specs, local = read(args, kwargs)
                recipe = recipes.get(key)
            except (LeftToTorch, TypeError):  # a symbolic size has no hash
                return by_torch(op, args, kwargs)
            if has_torch_function(*local):
                return by_torch(op, args, kwargs)
            # Equal hashes do not prove equal specs, and the recipe's specs may have changed since.
            if recipe is None or not (
                all(map(is_, specs, recipe.specs)) or adopt_all(args, recipe.specs)
            ):
                return missed(op, args, kwargs, key, specs)
            if recipe.result is None:
                return by_torch(op, args, kwargs)
            self.hits += 1
            if recipe.moved:
                local = moved_args(args, *recipe.moved)
            for position, value in recipe.rewritten.items():
                local[position] = value
            return recipe.result(compute(*local, **kwargs), args)

        def missed(op: OpOverload, args: Args, kwargs: Kwargs, key: Key, specs: Specs) -> Any:
            inputs = [spec for spec in specs if spec is not None]
            is_new = any(spec._hash is None for spec in inputs)
            made = None if kwargs else self._made_by_class(op, args)
            if made is not None:
                if not is_new:  # a spec with a hash is likely to come again
                    hash(made._spec)
                    result = result_of(made._spec, traits(op).is_view)
                    table.add(key, Recipe(specs, None, result))
                return made
            if not all(map(is_plain, inputs)):
                return by_torch(op, args, kwargs)
            if not is_new:
                return self._learned(op, args, kwargs, key, specs, table)
            try:
                for spec in inputs:
                    hash(spec)  # torch keeps it in the spec
            except TypeError:
                return by_torch(op, args, kwargs)
            return handler(op, args, kwargs)  # there may be a recipe for the hashes

        return straight_handler(op, recipes, self, handler)

    def _made_by_class(self, op: OpOverload, args: Args) -> DTensor | None:  # noqa: ARG002
        """Return the result of an op by a decision for other sizes; None if there is none."""
        return None

    def _learned(
        self, op: OpOverload, args: Args, kwargs: Kwargs, key: Key, specs: Specs, table: Table
    ) -> Any:
        """Let torch dispatch an op that has no recipe, and store a recipe of torch's actions."""
        self.misses += 1
        if self._misses_kept >= self._most_misses and not torch_path.is_dispatching():
            torch_path.clear_torch_caches()
            self.forget()
        self._misses_kept += 1  # even without a recipe
        observed = ObservedDecision(op)
        made = by_torch(op, args, kwargs, observed)
        recipe = recipe_of(op, args, kwargs, specs, made, observed)
        if recipe is not None:
            table.add(key, recipe)
        return made
