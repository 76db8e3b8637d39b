"""Replace CUDA optimizers, which ColossalAI imports but its planner never calls, by stubs."""

import sys
from importlib.util import find_spec
from types import ModuleType

_NAMES = {
    "galore_torch": ("GaLoreAdamW", "GaLoreAdafactor"),
    "bitsandbytes.optim.optimizer": ("Optimizer2State",),
}


def install() -> None:
    """Add a stub module with empty classes for each package that is not installed."""
    for name, classes in _NAMES.items():
        parts = name.split(".")
        if parts[0] not in sys.modules and find_spec(parts[0]) is not None:
            continue
        for depth in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
        for class_name in classes:
            setattr(sys.modules[name], class_name, type(class_name, (), {}))
