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
from contextlib import AbstractContextManager, contextmanager
from operator import is_
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._op_schema import OutputSharding

from planners.dtensor.cache.calls import (
    Key,
    LeftToTorch,
    Specs,
    agrees,
    reader,
    straight_handler,
)
from planners.dtensor.cache.recipes import Recipe, moved_args, recipe_of, result_of
from planners.dtensor.cache.shape_class import KnownClass, class_of, class_to_keep
from planners.dtensor.cache.shortcuts import direct_moves, without_autograd
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import BoundedTable, CacheInfo, Dispatch, bytes_held
from planners.dtensor.dispatch.handlers import ObservedDecision, by_torch, handling
from planners.dtensor.dispatch.specs import SpecTable, is_plain, layout_of
from planners.dtensor.dispatch.torch_path import (
    PROPAGATOR,
    Args,
    Handler,
    Kwargs,
    has_torch_function,
    strategy_of,
    traits,
)
from planners.instruments import replaced

MOST_ENTRIES = 1024
"""The most recipes that are kept for one op, and the most shape classes."""

MOST_MISSES = 10_000
"""The misses after which all caches are cleared: a miss adds about 6 KiB to torch's and ours."""

_REGISTRATIONS = (
    "register_op_strategy",
    "register_sharding_prop_rule",
    "register_single_dim_op_strategy",
)


class InternedDispatch(Dispatch):
    """A cache of recipes by op and specs of its inputs, at most `most_entries` for each op.

    After `most_misses` misses it deletes all recipes and clears torch's caches. Torch never deletes
    an entry, so new sizes in each step would fill the memory.
    """

    knows_classes = False
    """Whether an op without a recipe is decided by its shape class."""

    def __init__(self, most_entries: int = MOST_ENTRIES, most_misses: int = MOST_MISSES) -> None:
        self.hits = self.misses = 0
        self._specs = SpecTable()
        self._most_entries, self._most_misses = most_entries, most_misses
        self._misses_kept = 0  # in torch's caches
        self._recipes: dict[OpOverload, BoundedTable[Key, Recipe]] = {}
        self._classes: dict[OpOverload, BoundedTable[Key, KnownClass]] = {}
        self._hand_back: Callable[[OpOverload], None] = lambda op: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle all ops that return or change tensors, except those with `out`, in the context."""
        ops = [op for op in torch_path.ops_to_take_over() if traits(op).makes_tensors]
        with (
            without_autograd(),
            direct_moves(),
            self._specs.filled(),
            self._following_torch(),
            handling(ops, self._handler) as self._hand_back,
        ):
            yield

    def _following_torch(self) -> AbstractContextManager[None]:
        """Forget everything when torch's cache is cleared, and an op with a new strategy."""
        clear = torch._C._clear_DTensor_sharding_propagator_cache

        def cleared() -> None:
            clear()
            self.forget()

        def registering(register: Callable[..., None]) -> Callable[..., None]:
            def registered(propagator: Any, op: OpOverload, *args: Any, **kwargs: Any) -> None:
                self.give_back(op)
                register(propagator, op, *args, **kwargs)

            return registered

        kind = type(PROPAGATOR)
        return replaced(
            (
                (torch._C, "_clear_DTensor_sharding_propagator_cache", cleared),
                *((kind, name, registering(getattr(kind, name))) for name in _REGISTRATIONS),
            )
        )

    def clear(self) -> None:
        """Delete all recipes, and reset the counts."""
        self.forget()
        self.hits = self.misses = 0

    def forget(self) -> None:
        """Delete all recipes and classes, with their specs and meshes."""
        self._specs.clear()
        layout_of.cache_clear()  # keeps meshes alive
        for table in self._tables():
            table.clear()
        self._misses_kept = 0

    def give_back(self, op: OpOverload) -> None:
        """Delete an op's recipes; torch dispatches the op until the next installation."""
        self._hand_back(op)
        if op in self._recipes:
            self._recipes[op].clear()

    def cache_info(self) -> CacheInfo:
        """Return the cache's counts; the table of specs adds only to the bytes."""
        entries = [table.entries for table in self._tables() if table.entries]
        size = bytes_held([*entries, self._specs])
        return CacheInfo(self.hits, self.misses, sum(map(len, entries)), size)

    def _tables(self) -> list[BoundedTable[Any, Any]]:
        return [*self._recipes.values(), *self._classes.values()]

    def decided(self, op: OpOverload, args: Args, kwargs: Kwargs) -> OutputSharding | None:
        """Return this cache's decision for a call; None if torch decided the call."""
        try:
            recipe = self._recipes[op].entries.get(reader(op)(args, kwargs)[0])
        except (LeftToTorch, TypeError):
            return None
        if recipe is not None and recipe.sharding is not None:
            return recipe.sharding
        if recipe is None and (kwargs or self._class_of(op, args) is None):
            return None
        return OutputSharding(None)  # a decision by class moves no input

    def _handler(self, op: OpOverload) -> Handler:
        """Return a handler that carries out the op by its recipe, and makes recipes on misses."""
        table = self._recipes.setdefault(op, BoundedTable(self._most_entries))
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
                all(map(is_, specs, recipe.specs)) or all(map(agrees, specs, recipe.specs))
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
            # 1. The decision of another size, where sizes do not matter.
            known = None if kwargs else self._class_of(op, args)
            made = None if known is None else known.result(op, args)
            if made is not None:
                self.hits += 1
                if not is_new:  # a spec with a hash is likely to come again
                    hash(made._spec)
                    result = result_of(made._spec, traits(op).is_view)
                    table.add(key, Recipe(specs, None, result))
                return made
            if not all(map(is_plain, inputs)):
                return by_torch(op, args, kwargs)
            # 2. Torch's decision, for specs with hashes.
            if not is_new:
                return self._learned(op, args, kwargs, key, specs)
            # 3. The recipe for the hashes, if there is one.
            try:
                for spec in inputs:
                    hash(spec)  # torch keeps it in the spec
            except TypeError:
                return by_torch(op, args, kwargs)
            return handler(op, args, kwargs)

        return straight_handler(op, recipes, self, handler)

    def _class_of(self, op: OpOverload, args: Args) -> KnownClass | None:
        """Return the shape class of a call if it is known, and made by torch's present strategy."""
        if op not in self._classes:
            return None
        key = class_of(op, args)
        known = None if key is None else self._classes[op].entries.get(key)
        return known if known is not None and known.strategy is strategy_of(op) else None

    def _learned(self, op: OpOverload, args: Args, kwargs: Kwargs, key: Key, specs: Specs) -> Any:
        """Let torch dispatch an op that has no recipe, and store a recipe of torch's actions."""
        self.misses += 1
        if self._misses_kept >= self._most_misses and not torch_path.is_dispatching():
            torch_path.clear_torch_caches()
            self.forget()
        self._misses_kept += 1  # even without a recipe
        observed = ObservedDecision(op)
        made = by_torch(op, args, kwargs, observed)
        recipe = recipe_of(op, args, kwargs, specs, made, observed)
        if recipe is None:
            return made
        self._recipes[op].add(key, recipe)
        if self.knows_classes and not kwargs and recipe.result is not None:
            class_key = class_of(op, args)
            known = class_to_keep(op, args, recipe.sharding, made)
            if class_key is not None and known is not None:
                classes = self._classes.setdefault(op, BoundedTable(self._most_entries))
                classes.add(class_key, known)
        return made


class ShapeClass(InternedDispatch):
    """A cache of recipes by exact size; on a miss, of placements by shape class."""

    knows_classes = True
