"""Generate handlers without loops, from the types of the arguments in an op's schema.

A generated handler carries out a hit exactly as the general handler does, some two microseconds
faster. It is source text, compiled once for each op, as the methods of a dataclass are.
"""

from typing import Any

from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.cache.keys import is_static
from planners.dtensor.cache.recipes import adopt
from planners.dtensor.dispatch.torch_path import Handler, has_torch_function

_NUMBERS = frozenset((float, int, bool, type(None)))

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
            differs.append(f"(s{n} is not known{n} and not adopt(a{n}, known{n}))")
            continue
        if "Tensor" in kind or ("List" in kind and kind != "List[int]"):
            return general
        key = "list" if kind == "List[int]" else f"a{n}.__class__"
        if is_static(op, n):
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
        "adopt": adopt,
        "cache": cache,
        "compute": op._op,
        "general": general,
        "has_torch_function": has_torch_function,
        "recipes": recipes,
    }
    exec(source, names)  # noqa: S102 - the text above, with numbers and schema types put in
    handler: Handler = names["handler"]
    return handler
