"""How much memory cached decisions hold."""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh

# What a decision refers to but does not own.
_SHARED = (DeviceMesh, OpOverload, torch.dtype, type, ModuleType)


def bytes_held(roots: Iterable[Any]) -> int:
    """Return the bytes of the Python objects that only these roots lead to, each counted once.

    Meshes, ops, types and functions are left out: they live anyway.
    """
    seen: set[int] = set()
    waiting = list(roots)
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED) or callable(found):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        if isinstance(found, dict):
            waiting.extend(found.keys())
            waiting.extend(found.values())
        elif isinstance(found, tuple | list | set | frozenset):
            waiting.extend(found)
        elif hasattr(found, "__dict__"):
            waiting.append(vars(found))
        for slot in getattr(type(found), "__slots__", ()):
            if hasattr(found, slot):
                waiting.append(getattr(found, slot))
    return total
