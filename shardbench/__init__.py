"""Names to import in your own programs; the command line is in `shardbench.cli`.

from shardbench import Planner, accelerate, capture

Importing shardbench imports nothing else. A name is looked up when it is first used, and is the
object of its module, which is named below: it prints, pickles and compares as such.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what mypy and an editor read; the table below is what runs
    from harness.planning.capture import capture
    from planners.dimspec.upstream.accelerate import accelerate as accelerate_colossalai
    from planners.dtensor.accelerate import accelerate
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.estimates.estimator import calibrated_estimators
    from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints

__all__ = [
    "JsonPlanLoader",
    "Planner",
    "accelerate",
    "accelerate_colossalai",
    "calibrated_estimators",
    "capture",
    "plan_constraints",
]

_HOMES = {
    "JsonPlanLoader": "planners.embedding.plan_files.loader:JsonPlanLoader",
    "Planner": "planners.embedding.drop_in.planner:Planner",
    "accelerate": "planners.dtensor.accelerate:accelerate",
    "accelerate_colossalai": "planners.dimspec.upstream.accelerate:accelerate",
    "calibrated_estimators": "planners.embedding.estimates.estimator:calibrated_estimators",
    "capture": "harness.planning.capture:capture",
    "plan_constraints": "planners.embedding.plan_files.loader:plan_constraints",
}

_PACKAGES = {"fbgemm_gpu": "fbgemm-gpu, or fbgemm-gpu-cpu where there is no CUDA"}


def __getattr__(name: str) -> Any:
    """Import the object of a name, and keep it.

    Raises:
        AttributeError: there is no such name.
        ModuleNotFoundError: it needs a library that is not installed.
        ImportError: a package of another project hides one of shardbench's.
    """
    if name == "__version__":
        from importlib import metadata  # as long to import as all of the rest

        return metadata.version("shardbench")
    if name not in _HOMES:
        raise AttributeError(f"module 'shardbench' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        _check_own_packages()
        library = (error.name or "").partition(".")[0]
        if not library or find_spec(library):  # a release without that module: its error says so
            raise
        raise ModuleNotFoundError(
            f"{name} needs {library}, which is not installed: "
            f"pip install {_PACKAGES.get(library, library)}",
            name=error.name,
        ) from None
    globals()[name] = found
    return found


def _check_own_packages() -> None:
    """Raise ImportError where another package has the name of one of shardbench's own."""
    for name in ("harness", "planners", "reports"):
        spec = find_spec(name)
        found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        place = next(filter(None, found), None)
        if place and Path(__file__).resolve().parents[1] not in Path(place).resolve().parents:
            raise ImportError(f"Another package hides '{name}' of shardbench: {place}.", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
