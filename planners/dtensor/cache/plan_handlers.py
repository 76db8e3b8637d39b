"""Handlers of ops under the interned dispatch, one for each form of arguments.

The forms differ in nothing but speed. Each looks for a plan by the hashes of the specs, which torch
drops from a spec that it changes, and makes sure of it by identity.
"""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.cache.keys import Key, KeyRule, tensors_of
from planners.dtensor.cache.plans import OpPlan, PlanTally, adopt, local_args, make_dtensor
from planners.dtensor.dispatch.handlers import by_torch
from planners.dtensor.dispatch.tables import BoundedTable
from planners.dtensor.dispatch.torch_path import (
    Args,
    Handler,
    Kwargs,
    alias_storage,
    has_torch_function,
    traits,
)

Table = BoundedTable[Key, OpPlan]
Missed = Callable[[OpOverload, Args, Kwargs, Key], Any]


def handler_of(op: OpOverload, table: Table, tally: PlanTally, general: Handler) -> Handler:
    """Return the handler of an op for the form that its schema gives its arguments.

    What is of another form, or has no plan yet, goes on to `general`.
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


def of_any_form(rule: KeyRule, table: Table, tally: PlanTally, missed: Missed) -> Handler:
    """Return a handler for arguments of all forms; `missed` does an op that has no plan."""
    plans = table.entries
    key_of = rule.key

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        key = key_of(args, kwargs)
        if key is None:
            return by_torch(op, args, kwargs)
        plan = plans.get(key)
        # Specs with the same hashes may be others: the plan's may have been changed since.
        if plan is None or not all(map(adopt, tensors_of(args), plan.specs)):
            return missed(op, args, kwargs, key)
        if plan.result is None:
            return by_torch(op, args, kwargs)
        tally.hits += 1
        # Not by the plan's entry, which is known to be right for the forms below only.
        moved = plan.moved
        local = moved.local_args(args) if moved else local_args(args, plan.rewritten)
        return plan.result(op._op(*local, **kwargs), args)

    return handler


def _of_one(table: Table, is_view: bool, tally: PlanTally, general: Handler) -> Handler:
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs:
            (tensor,) = args
            spec, local = tensor._spec, tensor._local_tensor
            plan = plans.get((spec._hash,))
            if plan is not None and plan.output is not None and not has_torch_function(local):
                (known,) = plan.specs
                if spec is known or adopt(tensor, known):
                    tally.hits += 1
                    made = plan.compute(local)
                    result = make_dtensor(
                        DTensor, made, plan.output, requires_grad=made.requires_grad
                    )
                    if is_view:
                        alias_storage(result, tensor)
                    return result
        return general(op, args, kwargs)

    return handler


def _of_two(table: Table, is_in_place: bool, tally: PlanTally, general: Handler) -> Handler:
    """Two DTensors, or one and a number."""
    plans = table.entries

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
        plan = plans.get((*key, *kwargs) if kwargs else key)
        if plan is None or plan.output is None or has_torch_function(local, operand):
            return general(op, args, kwargs)
        specs = plan.specs
        if spec is not specs[0] and not adopt(left, specs[0]):
            return general(op, args, kwargs)
        if kind is DTensor and other is not specs[1] and not adopt(right, specs[1]):
            return general(op, args, kwargs)
        tally.hits += 1
        made = plan.compute(local, operand, **kwargs) if kwargs else plan.compute(local, operand)
        if is_in_place:
            return left
        return make_dtensor(DTensor, made, plan.output, requires_grad=made.requires_grad)

    return handler


def _of_three(table: Table, is_in_place: bool, tally: PlanTally, general: Handler) -> Handler:
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 3:
            first, second, third = args
            if (
                first.__class__ is DTensor
                and second.__class__ is DTensor
                and third.__class__ is DTensor
            ):
                spec, other, another = first._spec, second._spec, third._spec
                key: Key = (spec._hash, other._hash, another._hash)
                plan = plans.get((*key, *kwargs) if kwargs else key)
                if plan is not None and plan.output is not None:
                    known, other_known, another_known = plan.specs
                    local = first._local_tensor, second._local_tensor, third._local_tensor
                    if (
                        not has_torch_function(*local)
                        and (spec is known or adopt(first, known))
                        and (other is other_known or adopt(second, other_known))
                        and (another is another_known or adopt(third, another_known))
                    ):
                        tally.hits += 1
                        made = plan.compute(*local, **kwargs)
                        if is_in_place:
                            return first
                        return make_dtensor(
                            DTensor, made, plan.output, requires_grad=made.requires_grad
                        )
        return general(op, args, kwargs)

    return handler


def _with_size(table: Table, is_view: bool, tally: PlanTally, general: Handler) -> Handler:
    """A DTensor and a list of numbers, as a view has it."""
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and not kwargs:
            tensor, size = args
            spec, local = tensor._spec, tensor._local_tensor
            try:
                plan = plans.get((spec._hash, tuple(size)))
            except TypeError:  # a symbolic size
                plan = None
            if plan is not None and plan.output is not None and not has_torch_function(local):
                (known,) = plan.specs
                if spec is known or adopt(tensor, known):
                    tally.hits += 1
                    if plan.rewritten:
                        ((_, size),) = plan.rewritten
                    made = plan.compute(local, size)
                    result = make_dtensor(
                        DTensor, made, plan.output, requires_grad=made.requires_grad
                    )
                    if is_view:
                        alias_storage(result, tensor)
                    return result
        return general(op, args, kwargs)

    return handler


def are_those(specs: list[Any], plan: OpPlan, args: Args) -> bool:
    """Whether a plan is for these specs, and not for others with the same hashes."""
    return all(map(is_, specs, plan.specs)) or all(map(adopt, tensors_of(args), plan.specs))


def _with_numbers(rule: KeyRule, table: Table, tally: PlanTally, general: Handler) -> Handler:
    """DTensors, numbers, and lists of DTensors or of plain tensors without dimensions."""
    plans = table.entries
    is_free = rule.is_free

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        key: list[Any] = []
        specs: list[Any] = []
        local: list[Any] = []
        tensors: list[torch.Tensor] = []  # those of lists too
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
                kinds = {each.__class__ for each in value}
                if kinds == _DTENSORS:
                    of_list = [each._spec for each in value]
                    specs += of_list
                    key.append(tuple([spec._hash for spec in of_list]))
                    local.append([each._local_tensor for each in value])
                    tensors += local[-1]
                    continue
                if kinds == _PLAIN_TENSORS:
                    if max([each.ndim for each in value]):
                        return general(op, args, kwargs)
                    key.append(tuple([each.dtype for each in value]))
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
        plan = plans.get(tuple(key))
        if (
            plan is None
            or plan.result is None
            or has_torch_function(*tensors)
            or not are_those(specs, plan, args)
        ):
            return general(op, args, kwargs)
        tally.hits += 1
        if plan.moved is not None:
            local = plan.moved.local_args(args)
        return plan.result(plan.compute(*local, **kwargs), args)

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
