"""Recipes: how to carry out an op on inputs of certain specs, learned from a dispatch by torch."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, cast

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpInfo, OpSchema, OutputSharding
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planners.dtensor.cache.keys import specs_of, tensors_of
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.handlers import ObservedDecision
from planners.dtensor.dispatch.torch_path import DISPATCHER, Args, Kwargs, alias_storage, traits

make_dtensor = torch.Tensor._dtensor__new__

# By resident memory over 3,000 steps of an MLP with new sizes, on torch 2.13.0.
BYTES_OF_MISS = 4096
"""About how many bytes a miss adds to torch's caches."""

_BYTES_OF_SPEC = 512

Output: TypeAlias = DTensorSpec | tuple[DTensorSpec | None, ...] | None
Rewritten: TypeAlias = tuple[tuple[int, Any], ...]
"""The arguments that differ on this rank, by position."""

Result = Callable[[Any, Args], Any]
"""Makes an op's result from its local results and its arguments."""


@dataclass(frozen=True, eq=False, slots=True)
class MovedInputs:
    """The placements that an op needs for its inputs; torch redistributes the inputs first."""

    mesh: DeviceMesh
    schema: OpSchema  # of the op as it was called
    wanted: OpSchema  # with the needed placements, and with lists flattened

    def local_args(self, args: Args) -> list[Any]:
        """Let torch redistribute the inputs; return the local arguments of this rank."""
        inputs = _flat(args)
        specs = [value._spec if value.__class__ is DTensor else value for value in inputs]
        local = [value._local_tensor if value.__class__ is DTensor else value for value in inputs]
        info = OpInfo(self.mesh, self.schema, specs, local, {})
        DISPATCHER.redistribute_local_args(info, self.wanted, False)
        left = iter(info.local_args)
        return [
            list(islice(left, len(arg))) if arg.__class__ is list else next(left) for arg in args
        ]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to carry out an op on inputs with the specs `specs`."""

    specs: tuple[DTensorSpec, ...]  # of the inputs that are DTensors, in their order
    sharding: OutputSharding | None  # None if it follows from a decision for another size
    output: Output  # None if torch runs the op, inputs move, or the op returns no tensor
    rewritten: Rewritten
    compute: Callable[..., Any]  # torch's fastest function for local tensors of these types
    result: Result | None  # None if torch must run the op
    moved: MovedInputs | None = None  # None if no input moves

    @property
    def bytes_held(self) -> int:
        """The approximate size of this recipe in bytes."""
        made = len(self.output) if isinstance(self.output, tuple) else 1
        return _BYTES_OF_SPEC * (len(self.specs) + made)


@dataclass(slots=True)
class RecipeTally:
    """The number of calls with a recipe (hits) and without a recipe (misses)."""

    hits: int = 0
    misses: int = 0


def recipe_of(
    op: OpOverload, args: Args, kwargs: Kwargs, made: Any, observed: ObservedDecision
) -> Recipe | None:
    """Return a recipe that repeats torch's actions for a call; None if torch decomposes the op."""
    sharding, schema = observed.sharding, observed.schema
    if not _is_wrapped(op, args, made) or (sharding is None and schema is not None):
        return None
    if sharding is None and not observed.is_moved:
        sharding = OutputSharding(specs_made(made))
    elif sharding is None:  # a decision from torch's cache is not visible, so decide it again
        schema = DISPATCHER.unwrap_to_op_info(op, args, kwargs).schema
        sharding = torch_path.PROPAGATOR.propagate_op_sharding_non_cached(schema)
    specs, result, moved = specs_of(args), None, None
    rewritten: Rewritten | None = ()
    if sharding.needs_redistribute:
        rewritten = _rewritten(op, schema, sharding)
        if rewritten is None and type(made) is DTensor and not traits(op).is_view:
            moved = _moved(op, args, schema, sharding)
    is_known = rewritten is not None or moved is not None
    if is_known and specs[0].mesh._is_current_rank_part_of_mesh():
        result = _result(op, args, made, sharding.output_spec)
    if rewritten is None or result is None:
        return Recipe(specs, sharding, None, (), op._op, result, moved)
    output = specs_made(made)
    hash(output)
    compute = quickest_entry(op, args, kwargs, rewritten)
    return Recipe(specs, sharding, output, rewritten, compute, result)


def _is_wrapped(op: OpOverload, args: Args, made: Any) -> bool:
    """Whether a result is a DTensor or has DTensors; for in-place ops, whether it is the input."""
    if traits(op).is_in_place:
        return made is args[0] or (made is None and traits(op).takes_lists)
    return type(made) is DTensor or (
        type(made) in (list, tuple) and any(type(element) is DTensor for element in made)
    )


def specs_made(made: Any) -> Output:
    """Return the spec of an op's result, or a tuple with a spec for each of several results."""
    if type(made) in (list, tuple):
        return tuple(part._spec if type(part) is DTensor else None for part in made)
    return made._spec if type(made) is DTensor else None


def _result(op: OpOverload, args: Args, made: Any, output: Any) -> Result | None:
    """Return a function that wraps such local results; None if the specs differ from `output`."""
    is_view = traits(op).is_view
    if traits(op).is_in_place:
        if made is None:
            return lambda made, args: None
        stays = made is args[0] and output.placements == made._spec.placements
        return (lambda made, args: args[0]) if stays else None
    if type(made) is DTensor:
        return one_of(made._spec, is_view) if output == made._spec else None
    specs, kind = specs_made(made), type(made)
    if not isinstance(output, list | tuple) or specs != tuple(output):
        return None

    def several(made: Any, args: Args) -> Any:
        wrapped = [
            local
            if spec is None
            else make_dtensor(DTensor, local, spec, requires_grad=local.requires_grad)
            for local, spec in zip(made, specs, strict=True)
        ]
        if is_view:
            base = next(tensors_of(args))
            for tensor in wrapped:
                alias_storage(tensor, base)
        return wrapped if kind is list else tuple(wrapped)

    return several


def one_of(spec: DTensorSpec, is_view: bool) -> Result:
    """Return a function that wraps a local result in a DTensor with this spec.

    The result of a view shares the storage of the first DTensor among the arguments.
    """

    def result(made: Any, args: Args) -> DTensor:
        wrapped = make_dtensor(DTensor, made, spec, requires_grad=made.requires_grad)
        if is_view:
            alias_storage(wrapped, next(tensors_of(args)))
        return wrapped

    return result


def _rewritten(op: OpOverload, schema: OpSchema, sharding: OutputSharding) -> Rewritten | None:
    """Return this rank's arguments that are not tensors; None if torch also moves tensors."""
    suggested = sharding.redistribute_schema
    old, new = schema.args_schema, suggested.args_schema
    if (
        traits(op).takes_lists
        or not (sharding.use_val_from_redistribute_schema and suggested.op is op)
        or len(new) != len(old)
        or any(
            isinstance(spec, DTensorSpec) and spec.placements != other.placements
            for spec, other in zip(old, new, strict=True)
        )
    ):
        return None
    return tuple((at, value) for at, value in enumerate(new) if not isinstance(value, DTensorSpec))


def _moved(
    op: OpOverload, args: Args, schema: OpSchema, sharding: OutputSharding
) -> MovedInputs | None:
    """Return the placements to move an op's inputs to; None if torch does more than move them."""
    suggested = sharding.redistribute_schema
    inputs, wanted = _flat(args), tree_leaves(suggested.args_schema)
    if (
        suggested.op is not op
        or sharding.use_val_from_redistribute_schema
        or len(inputs) != len(wanted)
        or any(isinstance(value, torch.Tensor) and type(value) is not DTensor for value in inputs)
    ):
        return None
    mesh = next(tensors_of(args))._spec.mesh
    return MovedInputs(mesh, schema, OpSchema(op, tuple(wanted), suggested.kwargs_schema))


def _flat(args: Args) -> list[Any]:
    """Return the arguments with each list replaced by its elements."""
    flat: list[Any] = []
    for arg in args:
        if arg.__class__ is list:
            flat += arg
        else:
            flat.append(arg)
    return flat


class _OpsCalled(TorchDispatchMode):
    """A dispatch mode that lists the ops that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[OpOverload] = []

    def __torch_dispatch__(
        self, op: OpOverload, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        self.ops.append(op)
        return op(*args, **(kwargs or {}))


def quickest_entry(
    op: OpOverload, args: Args, kwargs: Kwargs, rewritten: Rewritten
) -> Callable[..., Any]:
    """Return torch's function or method for an op, if it runs only this op, else the op itself.

    A function or method parses its arguments faster, by about 0.7 microseconds a call. It chooses
    the overload by the arguments, so each is tried on meta tensors like these arguments.
    """
    name = op._schema.name.partition("::")[2]
    try:
        local = [_without_values(arg) for arg in local_args(args, rewritten)]
        named = {name: _without_values(value) for name, value in kwargs.items()}
    except RuntimeError:  # a nested tensor has no sizes, a sparse one no strides
        return cast(Callable[..., Any], op._op)
    for owner in (torch._C._VariableFunctions, torch.Tensor):
        with suppress(Exception), torch.no_grad(), _OpsCalled() as called:
            entry: Callable[..., Any] = getattr(owner, name)
            entry(*local, **named)
            if called.ops == [op]:
                return entry
    return cast(Callable[..., Any], op._op)


def _without_values(value: Any) -> Any:
    if type(value) is list:  # all elements have the same type, so one is enough
        return [_without_values(element) for element in value[:1]]
    if isinstance(value, torch.Tensor):
        return torch_path.on_meta_device(value.shape, value.stride(), value.dtype)
    return value


def local_args(args: Args, rewritten: Rewritten) -> list[Any]:
    """Return an op's arguments on this rank: local tensors, and the rewritten arguments."""
    local = [_local(arg) for arg in args]
    for position, value in rewritten:
        local[position] = value
    return local


def _local(value: Any) -> Any:
    if type(value) is list:
        return [part._local_tensor if type(part) is DTensor else part for part in value]
    return value._local_tensor if type(value) is DTensor else value


def adopt(tensor: DTensor, known: DTensorSpec) -> bool:
    """Return whether a tensor's spec equals `known`; if so, store `known` in the tensor.

    The meshes must have the same root mesh: an equal mesh may have other ranks or dead groups.
    """
    spec = tensor._spec
    if spec is known:
        return True
    shares_all_parts = (  # most do, and comparing them is slow
        spec.tensor_meta is known.tensor_meta
        and spec.placements is known.placements
        and spec.mesh is known.mesh
        and spec.shard_order is known.shard_order
    )
    if not shares_all_parts and not (
        spec == known
        and (spec.mesh is known.mesh or spec.mesh._get_root_mesh() is known.mesh._get_root_mesh())
    ):
        return False
    tensor._spec = known
    return True
