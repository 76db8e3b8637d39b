"""Cache keys of calls: the specs and types that matter for a decision, without other values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.specs import is_plain
from planners.dtensor.dispatch.torch_path import Args, Kwargs, has_torch_function

Key = tuple[Any, ...]


class LeftToTorch(Exception):
    """The decision depends on more than specs and types, so torch must decide."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The arguments of an op that matter for its decision, from torch's registration of the op."""

    tensor_positions: frozenset[int]
    first_static: int
    static_kwargs: tuple[str, ...]

    @classmethod
    def of(cls, op: OpOverload) -> "KeyRule":
        """Return the rule of an op; `first_static` is 100 if no argument is static."""
        registered = torch_path.schema_info(op)
        positions = torch_path.traits(op).tensor_positions
        if registered is None:
            return cls(positions, 100, ())
        return cls(positions, registered.static_argnum, tuple(registered.static_kwargkey or ()))

    def is_free(self, position: int) -> bool:
        """Whether only the type of a number at this position matters, not its value."""
        return position < self.first_static or position in self.tensor_positions

    def key(self, args: Args, kwargs: Kwargs) -> Key | None:
        """Return the key of a call; None if torch must decide.

        It contains hashes of the tensors' specs, types of numbers, and values of static arguments.
        """
        key: list[Any] = []
        try:
            for position, value in enumerate(args):
                if isinstance(value, torch.Tensor):
                    key.append(_of_tensor(value))
                elif type(value) is list and (
                    not value or any(isinstance(element, torch.Tensor) for element in value)
                ):
                    key.append(tuple(map(_of_element, value)))
                elif self.is_free(position):
                    key.append(type(value))
                elif type(value) is list:
                    key.append(tuple(value))
                else:  # 1, 1.0 and True are equal keys of a dictionary, but differ for an op
                    key += (type(value), value)
            if kwargs:
                key += self._of_kwargs(kwargs)
            hash(made := tuple(key))
        except (LeftToTorch, TypeError):  # a symbolic size has no hash
            return None
        return made

    def _of_kwargs(self, kwargs: Kwargs) -> Iterator[Any]:
        yield from kwargs
        for name, value in kwargs.items():
            if type(value) is DTensor:
                raise LeftToTorch
            if isinstance(value, torch.Tensor):
                yield _of_tensor(value)
            elif name in self.static_kwargs:
                yield type(value), value


def tensors_of(args: Args) -> Iterator[DTensor]:
    """Yield the DTensors among arguments, also those in lists."""
    for value in args:
        if type(value) is DTensor:
            yield value
        elif type(value) is list:
            yield from (element for element in value if type(element) is DTensor)


def specs_of(args: Args) -> tuple[DTensorSpec, ...]:
    """Return the specs of the DTensors among arguments, also of those in lists."""
    return tuple(tensor._spec for tensor in tensors_of(args))


def _of_tensor(tensor: torch.Tensor) -> Any:
    if type(tensor) is DTensor:
        spec = tensor._spec
        if not is_plain(spec) or has_torch_function(tensor._local_tensor):
            raise LeftToTorch
        return spec._hash or hash(spec)
    if type(tensor) is not torch.Tensor or tensor.ndim:
        raise LeftToTorch  # torch may warn, raise an error, or treat the type specially
    return tensor.dtype


def _of_element(value: Any) -> Any:
    return _of_tensor(value) if isinstance(value, torch.Tensor) else (type(value), value)
