"""Read a call of an op: its key in the cache, the specs of its DTensors, its local arguments."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.torch_path import Args, Kwargs, has_torch_function

Key = tuple[Any, ...]
Specs: TypeAlias = Sequence[DTensorSpec | None]
"""The specs of a call's arguments in their order; None for each that is no DTensor."""

Read: TypeAlias = tuple[Key, Specs, list[Any]]
"""A call's key, its specs, and its positional arguments on this rank."""

_DTENSORS = {DTensor}


class LeftToTorch(Exception):
    """The decision depends on more than specs and types, so torch must decide."""


def is_static(op: OpOverload, position: int) -> bool:
    """Whether the value of an argument matters for the decision, by torch's registration."""
    registered = torch_path.schema_info(op)
    is_tensor = str(op._schema.arguments[position].type) == "Tensor"
    return bool(registered and position >= registered.static_argnum and not is_tensor)


def reader(op: OpOverload) -> Callable[[Args, Kwargs], Read]:
    """Return a function that reads calls of an op, and raises LeftToTorch or TypeError.

    A key contains hashes of specs (None for a spec that torch has not hashed yet), types of
    numbers, and values of the arguments that are static by torch's registration of the op. It has
    no hash if a size is symbolic.
    """
    registered = torch_path.schema_info(op)
    static_kwargs = (registered and registered.static_kwargkey) or ()
    static = [is_static(op, position) for position in range(len(op._schema.arguments))]

    def read(args: Args, kwargs: Kwargs) -> Read:
        key: list[Any] = []
        specs: list[DTensorSpec | None] = []
        local: list[Any] = []
        for value in args:
            kind = value.__class__
            if kind is DTensor:
                spec = value._spec
                key.append(spec._hash)
                specs.append(spec)
                local.append(value._local_tensor)
                continue
            if kind is list and value and value[0].__class__ is DTensor:
                if {element.__class__ for element in value} != _DTENSORS:
                    raise LeftToTorch
                of_list = [element._spec for element in value]
                key.append(tuple([spec._hash for spec in of_list]))
                specs += of_list
                local.append([element._local_tensor for element in value])
                if has_torch_function(*local[-1]):
                    raise LeftToTorch
                continue
            key.append(_of_plain(value, static[len(local)]))
            specs.append(None)
            local.append(value)
        if kwargs:
            key += kwargs
            key += [_of_plain(kwargs[name], name in static_kwargs) for name in kwargs]
        return tuple(key), specs, local

    return read


def tensors_of(args: Args) -> Iterator[DTensor]:
    """Yield the DTensors among arguments, also those in lists."""
    for value in args:
        if type(value) is DTensor:
            yield value
        elif type(value) is list:
            yield from (element for element in value if type(element) is DTensor)


def _of_plain(value: Any, matters: bool) -> Any:
    """Return the part of a key for an argument that is neither a DTensor nor a list of DTensors."""
    kind = value.__class__
    if kind is list:
        has_numbers = not value or value[0].__class__ in (int, float)
        if not matters and has_numbers:
            return kind
        if not value or value[0].__class__ is int:
            return tuple(value)
        return tuple([_of_plain(element, True) for element in value])
    if isinstance(value, torch.Tensor):
        if kind is not torch.Tensor or value.ndim:
            raise LeftToTorch  # torch may warn, raise an error, or treat the type specially
        return value.dtype
    # 1, 1.0 and True are equal keys of a dictionary, but differ for an op.
    return (kind, value) if matters else kind
