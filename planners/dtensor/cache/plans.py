"""Plans: what is known to do with an op on inputs of certain specs."""

from collections.abc import Callable, Sequence
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
from planners.dtensor.dispatch.handlers import Decided
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Kwargs,
    alias_storage,
    on_meta_device,
    traits,
)

make_dtensor = torch.Tensor._dtensor__new__

Output: TypeAlias = DTensorSpec | tuple[DTensorSpec | None, ...] | None


Result = Callable[[Any, Args], Any]
"""Makes what an op returns, from what it makes of local tensors and from its arguments."""


@dataclass(frozen=True, eq=False, slots=True)
class MovedInputs:
    """Where an op needs its inputs, so that torch moves them before it is done."""

    mesh: DeviceMesh
    schema: OpSchema  # of the op as it was called
    wanted: OpSchema  # with the elements of lists in their place

    def local_args(self, args: Args) -> list[Any]:
        """Let torch move the inputs; return the arguments as this rank calls the op."""
        inputs = _flat(args)
        specs = [each._spec if each.__class__ is DTensor else each for each in inputs]
        local = [each._local_tensor if each.__class__ is DTensor else each for each in inputs]
        info = OpInfo(self.mesh, self.schema, specs, local, {})
        DISPATCHER.redistribute_local_args(info, self.wanted, False)
        left = iter(info.local_args)
        return [
            list(islice(left, len(each))) if each.__class__ is list else next(left) for each in args
        ]


@dataclass(frozen=True, slots=True)
class OpPlan:
    """What to do with an op on inputs of these specs."""

    specs: tuple[DTensorSpec, ...]  # of the inputs that are DTensors, in their order
    sharding: OutputSharding | None  # None where it follows from a decision at another size
    output: Output  # None where torch carries the op out, inputs are moved, or nothing is made
    rewritten: tuple[tuple[int, Any], ...]  # arguments that are others on this rank, by position
    compute: Callable[..., Any]  # torch's quickest entry for local tensors of these types
    result: Result | None  # None where torch is to carry the op out
    moved: MovedInputs | None = None  # None where no input is moved

    @property
    def bytes_held(self) -> int:
        """Return about how many bytes a plan takes."""
        made = len(self.output) if isinstance(self.output, tuple) else 1
        return _BYTES_OF_SPEC * (len(self.specs) + made)


# By resident memory over 3,000 steps of an MLP with new sizes, on torch 2.13.0.
BYTES_OF_MISS = 4096
"""About how many bytes a miss adds to torch's caches."""

_BYTES_OF_SPEC = 512


@dataclass(slots=True)
class PlanTally:
    """How often plans were found, and not found."""

    hits: int = 0
    misses: int = 0


def plan_of(
    op: OpOverload, args: Args, kwargs: Kwargs, made: Any, decided: Decided
) -> OpPlan | None:
    """Return a plan that does what torch was seen to do; None where torch takes the op apart."""
    sharding, schema = decided.sharding, decided.schema
    if not _is_wrapped(op, args, made) or (sharding is None and schema is not None):
        return None
    if sharding is None and not decided.is_moved:
        sharding = OutputSharding(specs_made(made))
    elif sharding is None:  # torch does not tell what it remembered, so it decides once more
        schema = DISPATCHER.unwrap_to_op_info(op, args, kwargs).schema
        sharding = PROPAGATOR.propagate_op_sharding_non_cached(schema)
    specs, result, moved = specs_of(args), None, None
    rewritten: tuple[tuple[int, Any], ...] | None = ()
    if sharding.needs_redistribute:
        rewritten = _rewritten(op, schema, sharding)
        if rewritten is None and type(made) is DTensor and not traits(op).is_view:
            moved = _moved(op, args, schema, sharding)
    is_known = rewritten is not None or moved is not None
    if is_known and specs[0].mesh._is_current_rank_part_of_mesh():
        result = _result(op, args, made, sharding.output_spec)
    if rewritten is None or result is None:
        return OpPlan(specs, sharding, None, (), op._op, result, moved)
    output = specs_made(made)
    hash(output)
    return OpPlan(
        specs, sharding, output, rewritten, quickest_entry(op, args, kwargs, rewritten), result
    )


def _is_wrapped(op: OpOverload, args: Args, made: Any) -> bool:
    """Whether an op made DTensors of those that it was given; torch takes some ops apart."""
    if traits(op).is_in_place:
        return made is args[0] or (made is None and traits(op).takes_lists)
    return type(made) is DTensor or (
        type(made) in (list, tuple) and any(type(each) is DTensor for each in made)
    )


def specs_made(made: Any) -> Output:
    """Return the spec of what an op made, or the specs where it made several tensors."""
    if type(made) in (list, tuple):
        return tuple(each._spec if type(each) is DTensor else None for each in made)
    return made._spec if type(made) is DTensor else None


def _result(op: OpOverload, args: Args, made: Any, output: Any) -> Result | None:
    """Return what makes such a result again; None where it is not as was decided."""
    is_view = traits(op).is_view
    if traits(op).is_in_place:
        if made is None:
            return _nothing
        stays = made is args[0] and output.placements == made._spec.placements
        return _first if stays else None
    if type(made) is DTensor:
        return one_of(made._spec, is_view) if output == made._spec else None
    specs = specs_made(made)
    if not isinstance(output, list | tuple) or specs != tuple(output):
        return None
    return several_of(specs, type(made), is_view)


def _nothing(_: Any, __: Args) -> None:
    return None


def _first(_: Any, args: Args) -> Any:
    return args[0]


def one_of(spec: DTensorSpec, is_view: bool) -> Result:
    """Return what makes a DTensor of a local one; a view shares the first argument's storage."""

    def result(made: Any, args: Args) -> DTensor:
        wrapped = make_dtensor(DTensor, made, spec, requires_grad=made.requires_grad)
        if is_view:
            alias_storage(wrapped, next(tensors_of(args)))
        return wrapped

    return result


def several_of(specs: Sequence[DTensorSpec | None], kind: type, is_view: bool) -> Result:
    """Return what makes DTensors of local ones, in a list or tuple."""

    def result(made: Any, args: Args) -> Any:
        wrapped = [
            each
            if spec is None
            else make_dtensor(DTensor, each, spec, requires_grad=each.requires_grad)
            for each, spec in zip(made, specs, strict=True)
        ]
        if is_view:
            base = next(tensors_of(args))
            for each in wrapped:
                alias_storage(each, base)
        return wrapped if kind is list else tuple(wrapped)

    return result


def _rewritten(
    op: OpOverload, schema: OpSchema, sharding: OutputSharding
) -> tuple[tuple[int, Any], ...] | None:
    """Return the arguments that are others on this rank; None where torch also moves tensors."""
    if traits(op).takes_lists:
        return None
    suggested = sharding.redistribute_schema
    old, new = schema.args_schema, suggested.args_schema
    if not (sharding.use_val_from_redistribute_schema and suggested.op is op):
        return None
    if len(new) != len(old) or any(
        isinstance(spec, DTensorSpec) and spec.placements != other.placements
        for spec, other in zip(old, new, strict=True)
    ):
        return None
    return tuple((at, each) for at, each in enumerate(new) if not isinstance(each, DTensorSpec))


def _moved(
    op: OpOverload, args: Args, schema: OpSchema, sharding: OutputSharding
) -> "MovedInputs | None":
    """Return what lets torch move the inputs of an op; None where it does more than that."""
    suggested = sharding.redistribute_schema
    inputs, wanted = _flat(args), tree_leaves(suggested.args_schema)
    if (
        suggested.op is not op
        or sharding.use_val_from_redistribute_schema
        or len(inputs) != len(wanted)
        or any(isinstance(each, torch.Tensor) and type(each) is not DTensor for each in inputs)
    ):
        return None
    mesh = next(tensors_of(args))._spec.mesh
    return MovedInputs(mesh, schema, OpSchema(op, tuple(wanted), suggested.kwargs_schema))


def _flat(args: Args) -> list[Any]:
    """Return arguments with the elements of lists in their place."""
    flat: list[Any] = []
    for each in args:
        if each.__class__ is list:
            flat += each
        else:
            flat.append(each)
    return flat


class _OpsCalled(TorchDispatchMode):
    """Lists the ops that a call comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[OpOverload] = []

    def __torch_dispatch__(
        self, op: OpOverload, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        self.ops.append(op)
        return op(*args, **(kwargs or {}))


def quickest_entry(
    op: OpOverload, args: Args, kwargs: Kwargs, rewritten: tuple[tuple[int, Any], ...]
) -> Callable[..., Any]:
    """Return torch's function or method for an op, where it comes to that op and no other.

    Both parse their arguments faster than the op itself, by about 0.7 microseconds a call. Which
    overload they come to depends on the arguments, so it is tried with the like of those at hand.
    """
    name = op._schema.name.partition("::")[2]
    try:
        local = [_without_values(each) for each in local_args(args, rewritten)]
        named = {each: _without_values(value) for each, value in kwargs.items()}
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
    if type(value) is list:  # its first element tells of what kind it is
        return [_without_values(each) for each in value[:1]]
    if isinstance(value, torch.Tensor):
        return on_meta_device(value.shape, value.stride(), value.dtype)
    return value


def local_args(args: Args, rewritten: tuple[tuple[int, Any], ...]) -> list[Any]:
    """Return the arguments of an op as this rank calls it."""
    local = [_local(each) for each in args]
    for position, value in rewritten:
        local[position] = value
    return local


def _local(value: Any) -> Any:
    if type(value) is list:
        return [each._local_tensor if type(each) is DTensor else each for each in value]
    return value._local_tensor if type(value) is DTensor else value


def same(spec: DTensorSpec, known: DTensorSpec) -> bool:
    """Whether a spec equals one with the same hash; quick where they share their parts.

    Its mesh must be a slice of the same mesh: an equal one may be of another rank or dead groups.
    """
    if (
        spec.tensor_meta is known.tensor_meta
        and spec.placements is known.placements
        and spec.mesh is known.mesh
        and spec.shard_order is known.shard_order
    ):
        return True
    return spec == known and (
        spec.mesh is known.mesh or spec.mesh._get_root_mesh() is known.mesh._get_root_mesh()
    )


def adopt(tensor: DTensor, known: DTensorSpec) -> bool:
    """Give a tensor the very spec that a plan knows, where its own equals it."""
    if tensor._spec is known:
        return True
    if not same(tensor._spec, known):
        return False
    tensor._spec = known
    return True
