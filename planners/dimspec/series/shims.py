"""Stand-ins for modules that ColossalAI imports and its conversions never call, with reasons."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from planners.dimspec.upstream import stubs

# Their `__init__` modules import optimizers and kernels for CUDA, of other releases of torch.
_PACKAGES = (
    "colossalai",
    "colossalai.auto_parallel",
    "colossalai.auto_parallel.tensor_shard",
    "colossalai.context",
    "colossalai.device",
)


def install() -> None:
    """Stand in for packages of the checkout on the import path."""
    stubs.install()
    root = next(Path(path) for path in sys.path if Path(path, "colossalai").is_dir())
    for name in _PACKAGES:
        _put(name, root)
    _allow_default_of_a_field(root)


def _put(name: str, root: Path) -> None:
    """Replace a package by an empty one; its modules are found as before."""
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")))]
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _allow_default_of_a_field(root: Path) -> None:
    """Make a class hashable: until 2023-09 it was a field's default, which Python 3.11 requires."""
    _put("colossalai.tensor", root)
    try:
        distspec = import_module("colossalai.tensor.distspec")
    except ImportError:
        pass
    else:
        distspec._DistSpec.__hash__ = object.__hash__
    finally:
        del sys.modules["colossalai.tensor"]
