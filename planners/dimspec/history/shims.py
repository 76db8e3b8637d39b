"""Stand-ins for what ColossalAI imports and its conversions never call, each with its reason."""

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
    """Stand in for packages of the checkout that is on the import path."""
    stubs.install()
    root = next(Path(each) for each in sys.path if Path(each, "colossalai").is_dir())
    for name in _PACKAGES:
        _put(name, root)
    _allow_default_of_a_field(root)


def _put(name: str, root: Path) -> None:
    """Put an empty package in place of one, whose modules are found as before."""
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")))]
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _allow_default_of_a_field(root: Path) -> None:
    """Make a class hashable that Python 3.11 takes no default of otherwise, until 2023-09."""
    _put("colossalai.tensor", root)
    try:
        distspec = import_module("colossalai.tensor.distspec")
    except ImportError:
        pass
    else:
        distspec._DistSpec.__hash__ = object.__hash__
    finally:
        del sys.modules["colossalai.tensor"]
