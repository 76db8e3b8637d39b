"""Replace modules that ColossalAI imports but does not need for conversions."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from planners.dimspec.upstream import stubs

# Their `__init__` modules import CUDA optimizers and kernels that need other torch releases.
_PACKAGES = (
    "colossalai",
    "colossalai.auto_parallel",
    "colossalai.auto_parallel.tensor_shard",
    "colossalai.context",
    "colossalai.device",
)


def install() -> None:
    """Replace these packages of the ColossalAI checkout, which must be on `sys.path`."""
    stubs.install()
    root = next(Path(path) for path in sys.path if Path(path, "colossalai").is_dir())
    for name in _PACKAGES:
        _put(name, root)
    _allow_default_of_a_field(root)


def _put(name: str, root: Path) -> None:
    """Replace a package by an empty one with the same path, so its modules can be imported."""
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")))]
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _allow_default_of_a_field(root: Path) -> None:
    """Make `_DistSpec` hashable: Python 3.11 requires that of a dataclass field's default value."""
    _put("colossalai.tensor", root)
    try:
        distspec = import_module("colossalai.tensor.distspec")
    except ImportError:
        pass
    else:
        distspec._DistSpec.__hash__ = object.__hash__
    finally:
        del sys.modules["colossalai.tensor"]
