"""The module in which asv discovers the benchmarks of all families.

A benchmark has a name like `families.embedding.time_plan`. Its parameters are a variant and a
problem of the family. The families of other packages are included if they are registered.
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping

from benchmarks.base import Checks, FamilyBenchmarks, tracking
from benchmarks.outline import Outline, note, outlines
from harness.contract.registry import Registry, load_registry

# asv identifies a cache by the first line of its function, so each family has its own line.
_CACHES: dict[str, Callable[[FamilyBenchmarks], Checks]] = {
    "dimspec": lambda suite: suite.check_cells(),
    "dtensor": lambda suite: suite.check_cells(),
    "embedding": lambda suite: suite.check_cells(),
    "experts": lambda suite: suite.check_cells(),
    "reshard": lambda suite: suite.check_cells(),
}


def _shared_cache(suite: FamilyBenchmarks) -> Checks:
    return suite.check_cells()


def benchmark_classes(
    registry: Registry, outlines: Mapping[str, Outline]
) -> dict[str, type[FamilyBenchmarks]]:
    """Create a benchmark class for each family, by the class name that asv shows.

    Each family of this project has its own asv cache. Families of other packages share one cache.
    """
    shared = {family: outline for family, outline in outlines.items() if family not in _CACHES}
    classes = {}
    for family, outline in outlines.items():
        members = {
            "__doc__": f"Benchmarks of the family '{family}'.",
            "registry": registry,
            "outlines": {family: outline} if family in _CACHES else shared,
            "family": family,
            "params": (outline.variants, outline.problems),
            "setup_cache": _CACHES.get(family, _shared_cache),
            **{f"track_{_identifier(figure.name)}": tracking(figure) for figure in outline.figures},
        }
        name = _identifier(family)
        classes[name] = type(name, (FamilyBenchmarks,), members)
    return classes


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)  # asv takes the text after a hyphen for a parameter


def _import_planners(registry: Registry) -> None:
    for family in registry.families:
        for module in family.modules:
            try:
                importlib.import_module(module)
            except Exception as error:  # the checks of the module's variants fail with it too
                note(f"Module '{module}' of family '{family.name}' could not be imported: {error}")


_REGISTRY = load_registry()
globals().update(benchmark_classes(_REGISTRY, outlines(_REGISTRY)))

if sys.argv[1:2] == ["run_server"]:  # asv forks all benchmarks from this process
    _import_planners(_REGISTRY)
