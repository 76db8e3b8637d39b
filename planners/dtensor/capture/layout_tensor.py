"""Local tensors that know their shape, stride and type, and remember what an op makes of those.

They need no memory and no computing. The meta device does neither, but many of its kernels are
written in Python and take a millisecond, a hundred times what dispatching takes; here each is asked
once for every op on tensors of such shapes, and what it said is looked up from then on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from planners.dtensor.dispatch.torch_path import on_meta_device
from planners.dtensor.programs.world import DEVICE


@dataclass(frozen=True, slots=True, eq=False)
class TensorLayout:
    """Shape and stride in elements, and type; there is one object for each."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class _SameAsInput(NamedTuple):
    """What an op returns that it was given, by its place among all that it was given."""

    place: int


_layouts: dict[tuple[Any, ...], TensorLayout] = {}
_known: dict[tuple[Any, ...], Any] = {}


def layout_of(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> TensorLayout:
    """Return the layout of a tensor."""
    key = (tuple(shape), tuple(stride), dtype)
    return _layouts.setdefault(key, TensorLayout(*key))


def forget() -> None:
    """Forget what ops make."""
    _known.clear()


class LayoutTensor(torch.Tensor):
    """A tensor of a layout, without values.

    An op in place that changes a layout raises TypeError: such a tensor keeps its own.
    """

    known_layout: TensorLayout

    @staticmethod
    def __new__(cls, layout: TensorLayout) -> "LayoutTensor":
        """Return a new tensor."""
        made: LayoutTensor = torch.Tensor._make_wrapper_subclass(
            cls, layout.shape, layout.stride, dtype=layout.dtype, device=DEVICE
        )
        made.known_layout = layout
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls,
        op: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what the op makes, by what is known of it."""
        key = (op, _key(args), _key(kwargs.items()) if kwargs else ())
        if key in _known:
            made = _known[key]
        else:
            made = _known[key] = _made_on_meta(op, args, kwargs or {})
        return LayoutTensor(made) if type(made) is TensorLayout else _made(made, args, kwargs)


def _key(values: Any) -> tuple[Any, ...]:
    return tuple(
        [
            value.known_layout
            if type(value) is LayoutTensor
            else _key(value)
            if isinstance(value, list | tuple)
            else (value.shape, value.stride(), value.dtype)
            if isinstance(value, torch.Tensor)
            else value
            if type(value) is int
            else (type(value), value)  # 1.0 and True make another type
            for value in values
        ]
    )


def _made_on_meta(op: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return what an op makes on the meta device, with layouts in place of tensors."""
    tried = tree_map(_on_meta_device, (args, kwargs))
    leaves = tree_leaves(tried)
    before = [_state(each) for each in leaves]
    made = op(*tried[0], **tried[1])
    if [_state(each) for each in leaves] != before:
        raise TypeError(f"{op} changes the layout of what it is given.")
    places = {id(each): place for place, each in enumerate(leaves)}

    def described(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        if id(each) in places:
            return _SameAsInput(places[id(each)])
        return layout_of(each.shape, each.stride(), each.dtype)

    return tree_map(described, made)


def _on_meta_device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Tensor):
        return on_meta_device(value.shape, value.stride(), value.dtype)
    return value


def _state(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else None


def _made(template: Any, args: Any, kwargs: Any) -> Any:
    if type(template) is TensorLayout:
        return LayoutTensor(template)
    if type(template) is _SameAsInput:
        return tree_leaves((args, kwargs or {}))[template.place]
    if isinstance(template, list | tuple):
        return type(template)([_made(each, args, kwargs) for each in template])
    return template
