"""Handlers of ops under the interned dispatch, one for each form of arguments.

The forms differ in nothing but speed. Each looks for a plan by the hashes of the specs, which torch
drops from a spec that it changes, and makes sure of it by identity.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.cache.plans import (
    Key,
    KeyRule,
    OpPlan,
    PlanTally,
    adopt,
    local_args,
    make_dtensor,
)
from planners.dtensor.dispatch.handlers import by_torch
from planners.dtensor.dispatch.tables import BoundedTable
from planners.dtensor.dispatch.torch_path import Args, Handler, Kwargs, alias_storage, traits

Table = BoundedTable[Key, OpPlan]
Missed = Callable[[OpOverload, Args, Kwargs, Key], Any]

functions_overridden = torch._C._len_torch_function_stack


def handler_of(op: OpOverload, table: Table, tally: PlanTally, general: Handler) -> Handler:
    """Return the handler of an op for the form that its schema gives its arguments.

    What is of another form, or has no plan yet, goes on to `general`.
    """
    takes = [str(argument.type) for argument in op._schema.arguments if not argument.kwarg_only]
    if make := _FORMS_OF_ONE_TENSOR.get(tuple(takes)):
        return make(table, traits(op).is_view, tally, general)
    if (make := _FORMS_OF_TENSORS.get(tuple(takes))) and not traits(op).is_view:
        return make(table, tally, general)
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
        tensors = (value for value in args if type(value) is DTensor)
        # Specs with the same hashes may be others: the plan's may have been changed since.
        if plan is None or not all(map(adopt, tensors, plan.specs)):
            return missed(op, args, kwargs, key)
        if plan.output is None:
            return by_torch(op, args, kwargs)
        tally.hits += 1
        # Not by the plan's entry, which is known to be right for the forms below only.
        made = op._op(*local_args(args, plan.rewritten), **kwargs)
        result = make_dtensor(DTensor, made, plan.output, requires_grad=made.requires_grad)
        if plan.is_view:
            alias_storage(result, next(value for value in args if type(value) is DTensor))
        return result

    return handler


def _of_one(table: Table, is_view: bool, tally: PlanTally, general: Handler) -> Handler:
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not (kwargs or functions_overridden()):
            (tensor,) = args
            spec = tensor._spec
            plan = plans.get((spec._hash,))
            if plan is not None and plan.output is not None:
                (known,) = plan.specs
                if spec is known or adopt(tensor, known):
                    tally.hits += 1
                    made = plan.compute(tensor._local_tensor)
                    result = make_dtensor(
                        DTensor, made, plan.output, requires_grad=made.requires_grad
                    )
                    if is_view:
                        alias_storage(result, tensor)
                    return result
        return general(op, args, kwargs)

    return handler


def _of_two(table: Table, tally: PlanTally, general: Handler) -> Handler:
    """Two DTensors, or one and a number."""
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and not (kwargs or functions_overridden()):
            left, right = args
            if left.__class__ is DTensor:
                spec = left._spec
                if right.__class__ is DTensor:
                    other = right._spec
                    plan = plans.get((spec._hash, other._hash))
                    if plan is not None and plan.output is not None:
                        known, other_known = plan.specs
                        if (spec is known or adopt(left, known)) and (
                            other is other_known or adopt(right, other_known)
                        ):
                            tally.hits += 1
                            made = plan.compute(left._local_tensor, right._local_tensor)
                            return make_dtensor(
                                DTensor, made, plan.output, requires_grad=made.requires_grad
                            )
                elif right.__class__ is float or right.__class__ is int:
                    plan = plans.get((spec._hash, right.__class__))
                    if plan is not None and plan.output is not None:
                        (known,) = plan.specs
                        if spec is known or adopt(left, known):
                            tally.hits += 1
                            made = plan.compute(left._local_tensor, right)
                            return make_dtensor(
                                DTensor, made, plan.output, requires_grad=made.requires_grad
                            )
        return general(op, args, kwargs)

    return handler


def _of_three(table: Table, tally: PlanTally, general: Handler) -> Handler:
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 3 and not (kwargs or functions_overridden()):
            first, second, third = args
            if (
                first.__class__ is DTensor
                and second.__class__ is DTensor
                and third.__class__ is DTensor
            ):
                spec, other, another = first._spec, second._spec, third._spec
                plan = plans.get((spec._hash, other._hash, another._hash))
                if plan is not None and plan.output is not None:
                    known, other_known, another_known = plan.specs
                    if (
                        (spec is known or adopt(first, known))
                        and (other is other_known or adopt(second, other_known))
                        and (another is another_known or adopt(third, another_known))
                    ):
                        tally.hits += 1
                        made = plan.compute(
                            first._local_tensor, second._local_tensor, third._local_tensor
                        )
                        return make_dtensor(
                            DTensor, made, plan.output, requires_grad=made.requires_grad
                        )
        return general(op, args, kwargs)

    return handler


def _with_size(table: Table, is_view: bool, tally: PlanTally, general: Handler) -> Handler:
    """A DTensor and a list of numbers, as a view has it."""
    plans = table.entries

    def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 2 and not (kwargs or functions_overridden()):
            tensor, size = args
            spec = tensor._spec
            try:
                plan = plans.get((spec._hash, tuple(size)))
            except TypeError:  # a symbolic size
                plan = None
            if plan is not None and plan.output is not None:
                (known,) = plan.specs
                if spec is known or adopt(tensor, known):
                    tally.hits += 1
                    if plan.rewritten:
                        ((_, size),) = plan.rewritten
                    made = plan.compute(tensor._local_tensor, size)
                    result = make_dtensor(
                        DTensor, made, plan.output, requires_grad=made.requires_grad
                    )
                    if is_view:
                        alias_storage(result, tensor)
                    return result
        return general(op, args, kwargs)

    return handler


_FORMS_OF_ONE_TENSOR: Mapping[tuple[str, ...], Callable[..., Handler]] = {
    ("Tensor",): _of_one,
    ("Tensor", "List[int]"): _with_size,
}
_FORMS_OF_TENSORS: Mapping[tuple[str, ...], Callable[..., Handler]] = {
    ("Tensor", "Tensor"): _of_two,
    ("Tensor", "Tensor", "Tensor"): _of_three,
}
