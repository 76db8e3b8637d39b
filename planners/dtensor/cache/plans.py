"""Plans: what is known to do with an op on inputs of certain specs."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.utils._python_dispatch import TorchDispatchMode

from planners.dtensor.dispatch.handlers import Decided
from planners.dtensor.dispatch.specs import is_plain
from planners.dtensor.dispatch.torch_path import (
    DISPATCHER,
    PROPAGATOR,
    Args,
    Kwargs,
    on_meta_device,
    schema_info,
    traits,
)

Key = tuple[Any, ...]
make_dtensor = torch.Tensor._dtensor__new__


@dataclass(frozen=True, slots=True)
class OpPlan:
    """What to do with an op on inputs of these specs."""

    specs: tuple[DTensorSpec, ...]  # of the inputs that are DTensors, in their order
    sharding: OutputSharding | None  # None where it follows from a decision at another size
    output: DTensorSpec | None  # None where torch is to carry the op out
    rewritten: tuple[tuple[int, Any], ...]  # arguments that are others on this rank, by position
    compute: Callable[..., torch.Tensor]  # torch's quickest entry for local tensors of these types
    is_view: bool  # the result shares the storage of the first tensor


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
    if type(made) is not DTensor or (sharding is None and decided.schema is not None):
        return None
    if sharding is None and not decided.is_moved:
        sharding = OutputSharding(made._spec)
    elif sharding is None:  # torch does not tell what it remembered, so it decides once more
        schema = DISPATCHER.unwrap_to_op_info(op, args, kwargs).schema
        sharding = PROPAGATOR.propagate_op_sharding_non_cached(schema)
    output = sharding.output_spec
    rewritten: tuple[tuple[int, Any], ...] | None = ()
    if not (isinstance(output, DTensorSpec) and output.mesh._is_current_rank_part_of_mesh()):
        output = None
    elif sharding.needs_redistribute:
        rewritten = _rewritten(op, schema, sharding)
    if output is None or rewritten is None or output != made._spec:
        return OpPlan(specs_of(args), sharding, None, (), op._op, traits(op).is_view)
    hash(output)
    entry = quickest_entry(op, args, rewritten)
    return OpPlan(specs_of(args), sharding, output, rewritten, entry, traits(op).is_view)


def _rewritten(
    op: OpOverload, schema: OpSchema, sharding: OutputSharding
) -> tuple[tuple[int, Any], ...] | None:
    """Return the arguments that are others on this rank; None where torch also moves tensors."""
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
    op: OpOverload, args: Args, rewritten: tuple[tuple[int, Any], ...]
) -> Callable[..., torch.Tensor]:
    """Return torch's function or method for an op, where it comes to that op and no other.

    Both parse their arguments faster than the op itself, by about 0.7 microseconds a call. Which
    overload they come to depends on the arguments, so it is tried with the like of those at hand.
    """
    name = op._schema.name.partition("::")[2]
    local = [
        on_meta_device(each.shape, each.stride(), each.dtype)
        if isinstance(each, torch.Tensor)
        else each
        for each in local_args(args, rewritten)
    ]
    for owner in (torch._C._VariableFunctions, torch.Tensor):
        with suppress(Exception), _OpsCalled() as called:
            entry: Callable[..., torch.Tensor] = getattr(owner, name)
            entry(*local)
            if called.ops == [op]:
                return entry
    return cast(Callable[..., torch.Tensor], op._op)


def local_args(args: Args, rewritten: tuple[tuple[int, Any], ...]) -> list[Any]:
    """Return the arguments of an op as this rank calls it."""
    local = [each._local_tensor if type(each) is DTensor else each for each in args]
    for position, value in rewritten:
        local[position] = value
    return local


def specs_of(args: Args) -> tuple[DTensorSpec, ...]:
    """Return the specs of the arguments that are DTensors."""
    return tuple(each._spec for each in args if type(each) is DTensor)


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

    def key(self, args: Args, kwargs: Kwargs) -> Key | None:
        """Return what the decision depends on; None where that is torch's business.

        Tensors stand for their specs' hashes, and numbers in a tensor's place for their types.
        """
        key: list[Any] = []
        try:
            for position, value in enumerate(args):
                if type(value) is DTensor:
                    spec = value._spec
                    if not is_plain(spec):
                        return None
                    key.append(spec._hash or hash(spec))
                elif isinstance(value, torch.Tensor):
                    if type(value) is not torch.Tensor or value.ndim:
                        return None  # torch warns of it, refuses it, or knows the type
                    key.append(value.dtype)
                elif position in self.tensor_positions:
                    key.append(type(value))
                elif position < self.first_static:
                    key.append(None)
                elif type(value) is list:
                    key.append(tuple(value))
                else:  # 1, 1.0 and True are one to a dictionary, but not to an op
                    key += (type(value), value)
            if kwargs:
                if any(isinstance(value, torch.Tensor) for value in kwargs.values()):
                    return None
                key += [
                    (name, type(kwargs[name]), kwargs[name])
                    for name in self.static_kwargs
                    if name in kwargs
                ]
            hash(made := tuple(key))
        except TypeError:  # a symbolic size
            return None
        return made
