"""Recipes: how to carry out an op on inputs of certain specs, learned from a dispatch by torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpInfo, OpSchema, OutputSharding
from torch.utils._pytree import tree_leaves

from planners.dtensor.cache.calls import Specs, tensors_of
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.handlers import ObservedDecision
from planners.dtensor.dispatch.torch_path import DISPATCHER, Args, Kwargs, alias_storage, traits

make_dtensor = torch.Tensor._dtensor__new__

Result = Callable[[Any, Args], Any]
"""Makes an op's result from its local results and its arguments."""

SpecsMade: TypeAlias = DTensorSpec | tuple[DTensorSpec | None, ...] | None
"""The spec of an op's result, or a tuple with a spec for each of several results."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to carry out an op on inputs with the specs `specs`."""

    specs: Specs  # of the inputs
    sharding: OutputSharding | None  # None if it follows from a decision for another size
    result: Result | None  # None if torch must run the op
    rewritten: Mapping[int, Any] = field(
        default_factory=dict
    )  # the arguments that differ on this rank, by position
    moved: tuple[OpSchema, OpSchema] | None = None  # if inputs move: as called, and as needed


def recipe_of(
    op: OpOverload,
    args: Args,
    kwargs: Kwargs,
    specs: Specs,
    made: Any,
    observed: ObservedDecision,
) -> Recipe | None:
    """Return a recipe that repeats torch's actions for a call; None if torch decomposes the op."""
    sharding, schema = observed.sharding, observed.schema
    if sharding is None and schema is not None:
        return None
    if traits(op).is_in_place:
        is_wrapped = made is args[0] or (made is None and traits(op).takes_lists)
    else:
        parts = made if type(made) in (list, tuple) else [made]
        is_wrapped = any(type(part) is DTensor for part in parts)
    if not is_wrapped:
        return None
    if sharding is None and not observed.is_moved:
        sharding = OutputSharding(specs_made(made))
    elif sharding is None:  # a decision from torch's cache is not visible, so decide it again
        schema = DISPATCHER.unwrap_to_op_info(op, args, kwargs).schema
        sharding = torch_path.PROPAGATOR.propagate_op_sharding_non_cached(schema)
    result = None
    if next(tensors_of(args))._spec.mesh._is_current_rank_part_of_mesh():
        result = _result(op, made, sharding.output_spec)
    if not sharding.needs_redistribute:
        return Recipe(specs, sharding, result)
    wanted = sharding.redistribute_schema
    if _is_local(op, schema, sharding):
        values = enumerate(wanted.args_schema)
        rewritten = {at: value for at, value in values if not isinstance(value, DTensorSpec)}
        return Recipe(specs, sharding, result, rewritten)
    flat = tree_leaves(wanted.args_schema)
    if (
        wanted.op is op
        and type(made) is DTensor
        and not (traits(op).is_view or sharding.use_val_from_redistribute_schema)
        and len(flat) == len(_flat(args))
        and all(
            type(value) is DTensor or not isinstance(value, torch.Tensor) for value in _flat(args)
        )
    ):
        needed = OpSchema(op, tuple(flat), wanted.kwargs_schema)
        return Recipe(specs, sharding, result, moved=(schema, needed))
    return Recipe(specs, sharding, None)


def moved_args(args: Args, schema: OpSchema, needed: OpSchema) -> list[Any]:
    """Let torch move an op's inputs to the needed placements; return the local arguments.

    `needed` has lists flattened, `schema` is of the op as it was called.
    """
    inputs = _flat(args)
    specs = [value._spec if value.__class__ is DTensor else value for value in inputs]
    local = [value._local_tensor if value.__class__ is DTensor else value for value in inputs]
    mesh = next(tensors_of(args))._spec.mesh
    info = OpInfo(mesh, schema, specs, local, {})
    DISPATCHER.redistribute_local_args(info, needed, False)
    left = iter(info.local_args)
    return [list(islice(left, len(arg))) if arg.__class__ is list else next(left) for arg in args]


def _is_local(op: OpOverload, schema: OpSchema, sharding: OutputSharding) -> bool:
    """Whether a redistribution replaces arguments by those of this rank, and moves no tensor."""
    wanted = sharding.redistribute_schema
    old, new = schema.args_schema, wanted.args_schema
    return (
        not traits(op).takes_lists
        and sharding.use_val_from_redistribute_schema
        and wanted.op is op
        and len(new) == len(old)
        and not any(
            isinstance(spec, DTensorSpec) and spec.placements != other.placements
            for spec, other in zip(old, new, strict=True)
        )
    )


def specs_made(made: Any) -> SpecsMade:
    """Return the spec of an op's result, or a tuple with a spec for each of several results."""
    if type(made) in (list, tuple):
        return tuple(part._spec if type(part) is DTensor else None for part in made)
    return made._spec if type(made) is DTensor else None


def _result(op: OpOverload, made: Any, output: Any) -> Result | None:
    """Return a function that wraps such local results; None if the specs differ from `output`."""
    if traits(op).is_in_place:
        if made is not None and output.placements != made._spec.placements:
            return None
        return lambda _, args: None if made is None else args[0]
    is_view, specs = traits(op).is_view, specs_made(made)
    hash(specs)  # the results of all later calls share these specs
    if isinstance(specs, DTensorSpec):
        return result_of(specs, is_view) if output == specs else None
    if specs is None or not isinstance(output, list | tuple) or specs != tuple(output):
        return None
    wrap_parts = [None if spec is None else result_of(spec, is_view) for spec in specs]
    kind = type(made)

    def results(local: Any, args: Args) -> Any:
        # Torch, too, leaves out what a local tensor of unlike size has not.
        parts = zip(local, wrap_parts, strict=False)
        return kind([wrap(part, args) if wrap else part for part, wrap in parts])

    return results


def result_of(spec: DTensorSpec, is_view: bool) -> Result:
    """Return a function that wraps a local result in a DTensor with this spec.

    The result of a view shares the storage of the first DTensor among the arguments.
    """

    def result(local: Any, _: Args) -> DTensor:
        return make_dtensor(DTensor, local, spec, requires_grad=local.requires_grad)

    def view(local: Any, args: Args) -> DTensor:
        made = make_dtensor(DTensor, local, spec, requires_grad=local.requires_grad)
        alias_storage(made, args[0])
        return made

    return view if is_view else result


def _flat(args: Args) -> list[Any]:
    """Return the arguments with each list replaced by its elements."""
    flat: list[Any] = []
    for arg in args:
        if arg.__class__ is list:
            flat += arg
        else:
            flat.append(arg)
    return flat
