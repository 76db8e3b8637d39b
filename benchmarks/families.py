"""The module in which asv discovers the benchmarks of all families.

A benchmark has a name like `families.embedding.time_plan`. Its parameters are a variant and a
problem of the family. The families of other packages are included if they are registered.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import json

from benchmarks import OUTLINE_FILE
from benchmarks.base import Checks, FamilyBenchmarks, Outline, tracking
from harness.contract import Quality
from harness.contract.registry import Registry, load_registry
from harness.model.errors import RegistryError

_SMOKE = "SHARDBENCH_ASV_SMOKE"
"""Set for a smoke test: only the first two variants of each family, on its first problem."""

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


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outline of each family, by the family's name.

    asv identifies a cell by its index among the parameters. If each commit used its own parameters,
    an added variant would shift the indices and put times under wrong names. So all commits use the
    outlines of the commit at which asv discovers the suite. Discovery writes them to the file that
    the environment variable names; later processes read that file.
    """
    name = os.environ.get(OUTLINE_FILE)
    if name is None:
        return registered(registry)
    file = Path(name)
    if not file.exists():
        file.write_bytes(json.encode(registered(registry)))
    return json.decode(file.read_bytes(), type=dict[str, Outline])


def registered(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the installed families; report the others on standard error.

    Raise RegistryError if a family cannot be loaded: asv must not pass without its benchmarks.
    """
    families, registered = registry.families, {}
    for name, reason in registry.failures.items():
        raise RegistryError(f"Family '{name}' could not be loaded: {reason}")
    for family in families:
        missing = [variant.missing() for variant in family.variants.values()]
        if all(missing):
            _note(f"Family '{family.name}' is not installed: it needs {', '.join(missing[0])}.")
            continue
        variants, problems = tuple(family.variants), family.benchmarks
        if os.environ.get(_SMOKE):
            variants, problems = variants[:2], problems[:1]
        counters = (Quality(counter.name, "count") for counter in family.counters)
        registered[family.name] = Outline(variants, problems, (*family.qualities, *counters))
    return registered


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")  # `asv --show-stderr` shows it


_REGISTRY = load_registry()
globals().update(benchmark_classes(_REGISTRY, outlines(_REGISTRY)))

if sys.argv[1:2] == ["run_server"]:  # asv forks all benchmarks from this process
    for _module in [module for family in _REGISTRY.families for module in family.modules]:
        try:
            importlib.import_module(_module)
        except Exception as error:  # the checks of the module's variants fail with it too
            _note(f"Module '{_module}' could not be imported: {error}")
