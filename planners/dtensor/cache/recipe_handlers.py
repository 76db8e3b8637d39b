"""Handlers of ops for `InternedDispatch`, one for each form of arguments, such as two tensors.

The handlers differ only in speed. Each looks up a recipe by the hashes of the specs, and then
compares the specs by identity. Torch deletes the hash of a spec when it changes the spec.
"""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.cache.keys import Key, KeyRule, tensors_of
from planners.dtensor.cache.recipes import Recipe, RecipeTally, adopt, local_args, make_dtensor
from planners.dtensor.dispatch.base import BoundedTable
from planners.dtensor.dispatch.handlers import by_torch
from planners.dtensor.dispatch.torch_path import (
    Args,
    Handler,
    Kwargs,
    alias_storage,
    has_torch_function,
    traits,
)

Table = BoundedTable[Key, Recipe]
Missed = Callable[[OpOverload, Args, Kwargs, Key], Any]


def handler_of(op: OpOverload, table: Table, tally: RecipeTally, general: Handler) -> Handler:
    """Return the fastest handler for the types of arguments in an op's schema.

    The handler calls `general` for arguments of another form and for calls without a recipe.
    """
    rule, of_op = KeyRule.of(op), traits(op)
    takes = of_op.types
    if of_op.makes_one_tensor and (make := _FORMS_OF_ONE_TENSOR.get(takes)):
        return make(table, of_op.is_view, tally, general)
    if not of_op.names.isdisjoint(rule.static_kwargs):
        return general
    if (
        (of_op.makes_one_tensor or of_op.is_in_place)
        and not of_op.is_view
        and (make := _FORMS_OF_TENSORS.get(takes))
    ):
        return make(table, of_op.is_in_place, tally, general)
    if of_op.takes_lists or of_op.is_in_place:
        return _with_numbers(rule, table, tally, general)
    return general


def of_any_form(rule: KeyRule, table: Table, tally: RecipeTally, missed: Missed) -> Handler:
    """Return a handler for arguments of all forms; it calls `missed` if there is no recipe."""
    recipes = table.entries
    key_of = rule.key

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        key = key_of(args, kwargs)
        if key is None:
            return by_torch(op, args, kwargs)
        recipe = recipes.get(key)
        # Equal hashes do not prove equal specs, and the recipe's specs may have changed since.
        if recipe is None or not all(map(adopt, tensors_of(args), recipe.specs)):
            return missed(op, args, kwargs, key)
        if recipe.result is None:
            return by_torch(op, args, kwargs)
        tally.hits += 1
        # Call the op, since `recipe.compute` is known to be correct only for the forms below.
        moved = recipe.moved
        local = moved.local_args(args) if moved else local_args(args, recipe.rewritten)
        return recipe.result(op._op(*local, **kwargs), args)

    return handler


def _of_one(table: Table, is_view: bool, tally: RecipeTally, general: Handler) -> Handler:
    recipes = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            return general(op, args, kwargs)
        (tensor,) = args
        spec, local = tensor._spec, tensor._local_tensor
        recipe = recipes.get((spec._hash,))
        if recipe is None or recipe.output is None or has_torch_function(local):
            return general(op, args, kwargs)
        (known,) = recipe.specs
        if spec is not known and not adopt(tensor, known):
            return general(op, args, kwargs)
        tally.hits += 1
        made = recipe.compute(local)
        result = make_dtensor(DTensor, made, recipe.output, requires_grad=made.requires_grad)
        if is_view:
            alias_storage(result, tensor)
        return result

    return handler


def _with_size(table: Table, is_view: bool, tally: RecipeTally, general: Handler) -> Handler:
    """Return a handler for a DTensor and a list of numbers, such as the size for a view."""
    recipes = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2 or kwargs:
            return general(op, args, kwargs)
        tensor, size = args
        spec, local = tensor._spec, tensor._local_tensor
        try:
            recipe = recipes.get((spec._hash, tuple(size)))
        except TypeError:  # a symbolic size
            recipe = None
        if recipe is None or recipe.output is None or has_torch_function(local):
            return general(op, args, kwargs)
        (known,) = recipe.specs
        if spec is not known and not adopt(tensor, known):
            return general(op, args, kwargs)
        tally.hits += 1
        if recipe.rewritten:
            ((_, size),) = recipe.rewritten
        made = recipe.compute(local, size)
        result = make_dtensor(DTensor, made, recipe.output, requires_grad=made.requires_grad)
        if is_view:
            alias_storage(result, tensor)
        return result

    return handler


def _of_two(table: Table, is_in_place: bool, tally: RecipeTally, general: Handler) -> Handler:
    """Return a handler for two DTensors, or a DTensor and a number."""
    recipes = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 2:
            return general(op, args, kwargs)
        left, right = args
        if left.__class__ is not DTensor:
            return general(op, args, kwargs)
        spec, kind = left._spec, right.__class__
        local, operand = left._local_tensor, right
        if kind is DTensor:
            other, operand = right._spec, right._local_tensor
            key: Key = (spec._hash, other._hash)
        elif kind is float or kind is int:
            key = (spec._hash, kind)
        else:
            return general(op, args, kwargs)
        recipe = recipes.get((*key, *kwargs) if kwargs else key)
        if recipe is None or recipe.output is None or has_torch_function(local, operand):
            return general(op, args, kwargs)
        specs = recipe.specs
        if spec is not specs[0] and not adopt(left, specs[0]):
            return general(op, args, kwargs)
        if kind is DTensor and other is not specs[1] and not adopt(right, specs[1]):
            return general(op, args, kwargs)
        tally.hits += 1
        compute = recipe.compute
        made = compute(local, operand, **kwargs) if kwargs else compute(local, operand)
        if is_in_place:
            return left
        return make_dtensor(DTensor, made, recipe.output, requires_grad=made.requires_grad)

    return handler


def _of_three(table: Table, is_in_place: bool, tally: RecipeTally, general: Handler) -> Handler:
    recipes = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 3:
            return general(op, args, kwargs)
        first, second, third = args
        if not (first.__class__ is second.__class__ is third.__class__ is DTensor):
            return general(op, args, kwargs)
        spec, other, another = first._spec, second._spec, third._spec
        key: Key = (spec._hash, other._hash, another._hash)
        recipe = recipes.get((*key, *kwargs) if kwargs else key)
        if recipe is None or recipe.output is None:
            return general(op, args, kwargs)
        known, other_known, another_known = recipe.specs
        local = first._local_tensor, second._local_tensor, third._local_tensor
        if (
            has_torch_function(*local)
            or (spec is not known and not adopt(first, known))
            or (other is not other_known and not adopt(second, other_known))
            or (another is not another_known and not adopt(third, another_known))
        ):
            return general(op, args, kwargs)
        tally.hits += 1
        made = recipe.compute(*local, **kwargs)
        if is_in_place:
            return first
        return make_dtensor(DTensor, made, recipe.output, requires_grad=made.requires_grad)

    return handler


def _with_numbers(rule: KeyRule, table: Table, tally: RecipeTally, general: Handler) -> Handler:
    """Return a handler for DTensors, numbers, and lists of DTensors or of 0-dimensional tensors."""
    recipes = table.entries
    is_free = rule.is_free

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        key: list[Any] = []
        specs: list[Any] = []
        local: list[Any] = []
        tensors: list[torch.Tensor] = []  # also those in lists
        for position, value in enumerate(args):
            kind = value.__class__
            if kind is DTensor:
                spec = value._spec
                specs.append(spec)
                key.append(spec._hash)
                local.append(value._local_tensor)
                tensors.append(value._local_tensor)
                continue
            if kind in _NUMBERS:
                key.append(kind)
                if not is_free(position):
                    key.append(value)
            elif kind is list:
                kinds = {element.__class__ for element in value}
                if kinds == _DTENSORS:
                    of_list = [element._spec for element in value]
                    specs += of_list
                    key.append(tuple([spec._hash for spec in of_list]))
                    local.append([element._local_tensor for element in value])
                    tensors += local[-1]
                    continue
                if kinds == _PLAIN_TENSORS:
                    if max([element.ndim for element in value]):
                        return general(op, args, kwargs)
                    key.append(tuple([element.dtype for element in value]))
                elif not kinds:
                    key.append(())
                elif kinds <= _NUMBERS and is_free(position):
                    key.append(list)
                else:
                    return general(op, args, kwargs)
            else:
                return general(op, args, kwargs)
            local.append(value)
        if kwargs:
            key += kwargs
            for value in kwargs.values():
                if isinstance(value, torch.Tensor):
                    if value.__class__ is not torch.Tensor or value.ndim:
                        return general(op, args, kwargs)
                    key.append(value.dtype)
        recipe = recipes.get(tuple(key))
        if (
            recipe is None
            or recipe.result is None
            or has_torch_function(*tensors)
            or not (
                all(map(is_, specs, recipe.specs))
                or all(map(adopt, tensors_of(args), recipe.specs))
            )
        ):
            return general(op, args, kwargs)
        tally.hits += 1
        if recipe.moved is not None:
            local = recipe.moved.local_args(args)
        return recipe.result(recipe.compute(*local, **kwargs), args)

    return handler


_DTENSORS, _PLAIN_TENSORS, _NUMBERS = {DTensor}, {torch.Tensor}, {float, int}

_FORMS_OF_ONE_TENSOR: Mapping[tuple[str, ...], Callable[..., Handler]] = {
    ("Tensor",): _of_one,
    ("Tensor", "List[int]"): _with_size,
}
_FORMS_OF_TENSORS: Mapping[tuple[str, ...], Callable[..., Handler]] = {
    ("Tensor", "Tensor"): _of_two,
    ("Tensor", "Tensor", "Tensor"): _of_three,
}
