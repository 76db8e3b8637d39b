"""The names to import in your own programs; the command line is in `shardbench.cli`.

from shardbench import Planner, accelerate, capture

Importing shardbench loads no library and none of its other modules. The first use of a name imports
the object from its module in `_HOMES`: it prints, pickles and compares as that module's object. A
star import gives the names whose libraries are installed.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for mypy and editors; at run time, the table below counts
    from harness.planning.capture import capture
    from planners.dimspec.upstream.accelerate import accelerate as accelerate_colossalai
    from planners.dtensor.accelerate import accelerate
    from planners.dtensor.optimizer.accelerate import accelerate_optimizer
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.drop_in.provider import PlannerProvider
    from planners.embedding.estimates.estimator import calibrated_estimators
    from planners.embedding.plan_cache.cache import PlanCache
    from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
    from planners.experts.drop_in.accelerate import accelerate_experts
    from planners.placement.drop_in.accelerate import accelerate_autoparallel
    from shardbench.step import compare_step

    __all__ = [
        "JsonPlanLoader",
        "PlanCache",
        "Planner",
        "PlannerProvider",
        "accelerate",
        "accelerate_autoparallel",
        "accelerate_colossalai",
        "accelerate_experts",
        "accelerate_optimizer",
        "calibrated_estimators",
        "capture",
        "compare_step",
        "plan_constraints",
    ]

_HOMES = {
    "JsonPlanLoader": "planners.embedding.plan_files.loader:JsonPlanLoader",
    "PlanCache": "planners.embedding.plan_cache.cache:PlanCache",
    "Planner": "planners.embedding.drop_in.planner:Planner",
    "PlannerProvider": "planners.embedding.drop_in.provider:PlannerProvider",
    "accelerate": "planners.dtensor.accelerate:accelerate",
    "accelerate_autoparallel": "planners.placement.drop_in.accelerate:accelerate_autoparallel",
    "accelerate_colossalai": "planners.dimspec.upstream.accelerate:accelerate",
    "accelerate_experts": "planners.experts.drop_in.accelerate:accelerate_experts",
    "accelerate_optimizer": "planners.dtensor.optimizer.accelerate:accelerate_optimizer",
    "calibrated_estimators": "planners.embedding.estimates.estimator:calibrated_estimators",
    "capture": "harness.planning.capture:capture",
    "compare_step": "shardbench.step:compare_step",
    "plan_constraints": "planners.embedding.plan_files.loader:plan_constraints",
}

_PACKAGES = {
    "autoparallel": "git+https://github.com/meta-pytorch/autoparallel",
    "fbgemm_gpu": "fbgemm-gpu, or fbgemm-gpu-cpu where there is no CUDA",
}


def __getattr__(name: str) -> Any:
    """Import and return the object called `name`, and store it in this module.

    Raises:
        AttributeError: the name is unknown.
        ModuleNotFoundError: the object needs a library that is not installed.
        ImportError: a package of another project hides a package of shardbench.
    """
    if name == "__version__":
        from importlib import metadata  # takes as long to import as everything else together

        return metadata.version("shardbench")
    if name == "__all__":  # of a star import
        return [each for each in _HOMES if _is_importable(each)]
    if name not in _HOMES:
        raise AttributeError(f"module 'shardbench' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    try:
        value = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        _check_own_packages()
        library = (error.name or "").partition(".")[0]
        if not library or find_spec(library):  # its release lacks a module; the error names it
            raise
        raise ModuleNotFoundError(
            f"{name} needs {library}, which is not installed: "
            f"pip install {_PACKAGES.get(library, library)}",
            name=error.name,
        ) from None
    globals()[name] = value
    return value


def _is_importable(name: str) -> bool:
    try:
        __getattr__(name)
    except ModuleNotFoundError:
        return False
    return True


def _check_own_packages() -> None:
    """Raise ImportError if another project's package hides `harness`, `planners` or `reports`."""
    root = Path(__file__).resolve().parents[1]
    for name in ("harness", "planners", "reports"):
        spec = find_spec(name)
        file = spec.origin if spec else None
        if file and root not in Path(file).resolve().parents:
            raise ImportError(f"Another package hides '{name}' of shardbench: {file}.", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
