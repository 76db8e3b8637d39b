"""Keys of ops: the specs and types that a decision depends on, never what may change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch.specs import is_plain
from planners.dtensor.dispatch.torch_path import (
    Args,
    Kwargs,
    has_torch_function,
    schema_info,
    traits,
)

Key = tuple[Any, ...]


class TorchsBusiness(Exception):
    """The decision is not one by specs and types alone."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Which arguments of an op its decision depends on, as torch has registered it."""

    tensor_positions: frozenset[int]
    first_static: int
    static_kwargs: tuple[str, ...]

    @classmethod
    def of(cls, op: OpOverload) -> "KeyRule":
        """Return the rule of an op; torch takes 100 for the first where none is registered."""
        registered, positions = schema_info(op), traits(op).tensor_positions
        if registered is None:
            return cls(positions, 100, ())
        static_kwargs = tuple(registered.static_kwargkey or ())
        return cls(positions, registered.static_argnum, static_kwargs)

    def is_free(self, position: int) -> bool:
        """Whether the value of a number in this place cannot matter, but its type."""
        return position < self.first_static or position in self.tensor_positions

    def key(self, args: Args, kwargs: Kwargs) -> Key | None:
        """Return what the decision depends on; None where that is torch's business.

        Tensors stand for their specs' hashes, and numbers for their types unless they are static.
        """
        key: list[Any] = []
        try:
            for position, value in enumerate(args):
                if isinstance(value, torch.Tensor):
                    key.append(_of_tensor(value))
                elif type(value) is list and has_tensors(value):
                    key.append(tuple(map(_of_element, value)))
                elif self.is_free(position):
                    key.append(type(value))
                elif type(value) is list:
                    key.append(tuple(value))
                else:  # 1, 1.0 and True are one to a dictionary, but not to an op
                    key += (type(value), value)
            if kwargs:
                key += self._of_kwargs(kwargs)
            hash(made := tuple(key))
        except (TorchsBusiness, TypeError):  # or a symbolic size
            return None
        return made

    def _of_kwargs(self, kwargs: Kwargs) -> Iterator[Any]:
        yield from kwargs
        for name, value in kwargs.items():
            if type(value) is DTensor:
                raise TorchsBusiness
            if isinstance(value, torch.Tensor):
                yield _of_tensor(value)
            elif name in self.static_kwargs:
                yield type(value), value


def has_tensors(values: Sequence[Any]) -> bool:
    """Whether a list is one of tensors; an empty one may be."""
    return not values or any(isinstance(value, torch.Tensor) for value in values)


def tensors_of(args: Args) -> Iterator[DTensor]:
    """Yield the arguments that are DTensors, those in lists too."""
    for value in args:
        if type(value) is DTensor:
            yield value
        elif type(value) is list:
            yield from (each for each in value if type(each) is DTensor)


def specs_of(args: Args) -> tuple[DTensorSpec, ...]:
    """Return the specs of the arguments that are DTensors, those in lists too."""
    return tuple(each._spec for each in tensors_of(args))


def _of_tensor(tensor: torch.Tensor) -> Any:
    if type(tensor) is DTensor:
        spec = tensor._spec
        if not is_plain(spec) or has_torch_function(tensor._local_tensor):
            raise TorchsBusiness
        return spec._hash or hash(spec)
    if type(tensor) is not torch.Tensor or tensor.ndim:
        raise TorchsBusiness  # torch warns of it, refuses it, or knows the type
    return tensor.dtype


def _of_element(value: Any) -> Any:
    return _of_tensor(value) if isinstance(value, torch.Tensor) else (type(value), value)
