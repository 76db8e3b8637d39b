"""Read calls of an op: the key of its recipe, the specs of its DTensors, its local arguments.

Two kinds of handlers read calls. The general one loops over any arguments. For an op without lists
of tensors, `straight_handler` generates a handler without loops from the types in the op's schema,
which carries out a hit in the same way, some two microseconds faster. It is source text, compiled
once for each op, as the methods of a dataclass are.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import is_not
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.torch_path import Args, Handler, Kwargs, has_torch_function

Key = tuple[Any, ...]
Specs: TypeAlias = Sequence[DTensorSpec | None]
"""The specs of a call's arguments in their order; None for each that is no DTensor."""

_DTENSORS = {DTensor}
_NUMBERS = frozenset((float, int, bool, type(None)))


class LeftToTorch(Exception):
    """The decision depends on more than specs and types, so torch must decide."""


def tensors_of(args: Args) -> Iterator[DTensor]:
    """Yield the DTensors among arguments, also those in lists."""
    for value in args:
        if type(value) is DTensor:
            yield value
        elif type(value) is list:
            yield from (element for element in value if type(element) is DTensor)


def agrees(spec: Any, known: Any) -> bool:
    """Return whether a spec equals the one in a recipe; if so, let both have the same attributes.

    Then the next comparison is quick. The specs stay two objects, and the owner of one may give it
    other attributes. Sizes of another type, as a tuple equal to a torch.Size, stay as they are. The
    meshes must have the same root mesh: an equal mesh may have other ranks or dead groups.
    """
    if spec is known:
        return True
    if (
        spec.tensor_meta is known.tensor_meta
        and spec.placements is known.placements
        and spec.mesh is known.mesh
        and spec.shard_order is known.shard_order
    ):
        return True
    if spec != known or (
        spec.mesh is not known.mesh
        and spec.mesh._get_root_mesh() is not known.mesh._get_root_mesh()
    ):
        return False
    if any(map(is_not, map(type, spec.tensor_meta), map(type, known.tensor_meta))):
        return True
    vars(spec).update(
        mesh=known.mesh,
        placements=known.placements,
        tensor_meta=known.tensor_meta,
        shard_order=known.shard_order,
    )
    return True


def reader(op: OpOverload) -> Callable[[Args, Kwargs], tuple[Key, Specs, list[Any]]]:
    """Return a function that reads calls of an op, and raises LeftToTorch or TypeError.

    It returns the key, the specs, and the positional arguments on this rank. A key contains hashes
    of specs (None for a spec that torch has not hashed yet), types of numbers, and values of the
    arguments that are static by torch's registration of the op. It has no hash if a size is
    symbolic.
    """
    registered = torch_path.schema_info(op)
    static_kwargs = (registered and registered.static_kwargkey) or ()
    static = [_is_static(op, position) for position in range(len(op._schema.arguments))]

    def read(args: Args, kwargs: Kwargs) -> tuple[Key, Specs, list[Any]]:
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


def _is_static(op: OpOverload, position: int) -> bool:
    """Whether the value of an argument matters for the decision, by torch's registration."""
    registered = torch_path.schema_info(op)
    is_tensor = str(op._schema.arguments[position].type) == "Tensor"
    return bool(registered and position >= registered.static_argnum and not is_tensor)


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


_HANDLER = """
def handler(op, args, kwargs):
    if kwargs or len(args) != {count}:
        return general(op, args, kwargs)
    {args} = args
{reads}
    try:
        recipe = recipes.get(({keys}))
    except TypeError:  # a symbolic size has no hash
        return general(op, args, kwargs)
    if recipe is None or recipe.result is None or recipe.moved or has_torch_function({locals}):
        return general(op, args, kwargs)
    {known} = recipe.specs
    if {differs}:
        return general(op, args, kwargs)
    if recipe.rewritten:
        {rewrites}
    cache.hits += 1
    return recipe.result(compute({locals}), args)
"""

_TENSOR = """
    if a{n}.__class__ is DTensor:
        s{n} = a{n}._spec
        key{n}, local{n} = s{n}._hash, a{n}._local_tensor
    elif a{n}.__class__ in NUMBERS:
        s{n}, key{n}, local{n} = None, a{n}.__class__, a{n}
    else:
        return general(op, args, kwargs)"""

_OTHER = "    key{n}, local{n} = {key}, a{n}"


def straight_handler(op: OpOverload, recipes: Any, cache: Any, general: Handler) -> Handler:
    """Return a handler that calls `general` for calls of another form, and without a recipe.

    Return `general` itself for an op that takes lists of tensors.
    """
    types = [str(arg.type) for arg in op._schema.arguments if not arg.kwarg_only]
    reads, differs, rewrites = [], [], ["pass"]
    for n, kind in enumerate(types):
        if kind in ("Tensor", "Optional[Tensor]"):
            reads.append(_TENSOR.format(n=n))
            differs.append(f"(s{n} is not known{n} and not agrees(s{n}, known{n}))")
            continue
        if "Tensor" in kind or ("List" in kind and kind != "List[int]"):
            return general
        key = "list" if kind == "List[int]" else f"a{n}.__class__"
        if _is_static(op, n):
            key = f"tuple(a{n})" if kind == "List[int]" else f"(a{n}.__class__, a{n})"
        reads.append(_OTHER.format(n=n, key=key))
        rewrites.append(f"local{n} = recipe.rewritten[{n}]")

    def listed(name: str) -> str:
        return "".join(f"{name}{n}, " for n in range(len(types)))

    source = _HANDLER.format(
        count=len(types),
        args=listed("a"),
        reads="\n".join(reads),
        keys=listed("key"),
        locals=listed("local"),
        known=listed("known"),
        differs=" or ".join(differs),
        rewrites="; ".join(rewrites),
    )
    names = {
        "DTensor": DTensor,
        "NUMBERS": _NUMBERS,
        "agrees": agrees,
        "cache": cache,
        "compute": op._op,
        "general": general,
        "has_torch_function": has_torch_function,
        "recipes": recipes,
    }
    exec(source, names)  # noqa: S102 - the text above, with numbers and schema types put in
    handler: Handler = names["handler"]
    return handler
