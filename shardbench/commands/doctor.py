"""`shardbench doctor`: show which parts work on this machine, and how to install others."""

from collections.abc import Iterator, Mapping
from typing import Any

from click import option
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Group, RenderableType

from harness.contract.registry import Registry
from harness.measuring.environment import environment
from harness.measuring.selftest import SHORT, SelfTest, selftest
from harness.series.installing import INSTALLED, RELEASES_FOLDER, kept_releases
from harness.series.points import libraries
from harness.topologies import probe
from reports.core.formatting import plural
from reports.core.table import code, table_of, text
from reports.core.terminal import as_terminal
from shardbench import options
from shardbench.command import command
from shardbench.progress import progress_display

_BUDGET = 60.0
_LONGEST_NAME = 34
_BUSY = 0.3


@command("shardbench doctor")
@option("--seconds", type=options.POSITIVE, default=3.0, help="Seconds to measure the noise for.")
@options.json
def doctor(seconds: float, json: str) -> None:
    """Show which parts work here, and how to install the others.

    Lists libraries, releases, GPUs and cores, and measures the noise of this machine: it compares
    equal calls with each other for some seconds.
    """
    registry = options.found_registry()
    gpus, no_gpu = probe.read_gpus()
    here = to_builtins(environment(0))  # the load before this command adds its own
    settings = options.settings_of(_BUDGET, seconds, 0)
    settings = replace(settings, sampling=replace(settings.sampling, warmup_seconds=0.5))
    with progress_display() as listen:
        rounds = list(selftest(1, settings, listen=listen, added=(0,)))
    noise = SelfTest.of(rounds, SHORT / 1000, 0.0)
    document = {
        "environment": here,
        "gpus": [gpu.name for gpu in gpus],
        "no_gpu": no_gpu,
        "releases": {
            library: [INSTALLED, *kept_releases(library, RELEASES_FOLDER)]
            for library in libraries(registry, "releases")
        },
        "skipped": list(_skipped(registry, bool(gpus))),
        "noise": {
            "call_seconds": SHORT / 1000,
            **{name: getattr(noise, name) for name in ("pairs", "pair_spread", "reach")},
        },
    }
    options.show_or_write(json, document, _shown(document))


def _skipped(registry: Registry, has_gpu: bool) -> Iterator[dict[str, Any]]:
    """Yield the names of unavailable parts by need, and a command that meets it, "" for none."""
    by_need: dict[str, list[str]] = {}
    for family in registry.families:
        for variant in family.variants.values():
            for need in variant.missing():
                by_need.setdefault(need, []).append(f"{family.name}/{variant.name}")
    for name, reason in registry.failures.items():
        by_need.setdefault(reason, []).append(f"family {name}")
    if not has_gpu:
        capture = "a GPU (shardbench topology capture --from-topo FILE)"
        by_need[capture] = ["topology capture of this machine"]
    for need, names in by_need.items():  # a need is `NAME`, or `NAME (COMMAND)`
        what, _, remedy = need.removesuffix(")").partition(" (")
        if not remedy and what.replace("_", "").isalnum():
            remedy = f"pip install {what}"
        yield {"names": names, "needs": what, "command": remedy}


def _shown(document: Mapping[str, Any]) -> RenderableType:
    """Render the machine, the libraries, the releases, and the unavailable parts."""
    here, noise = document["environment"], document["noise"]
    busy = "; it is busy, so times will be noisy" if (here["load"] or 0) >= _BUSY else ""
    cores = plural(here["cores"] or 1, "core")
    machine = {
        "shardbench": f"{here['shardbench']}, Python {here['python']}, {here['system']}",
        "processor": f"{here['cpu']}, {cores}, {here['memory_gib']:g} GiB",
        "GPU": ", ".join(document["gpus"]) or f"none: {document['no_gpu'].rstrip('.')}",
        "load": f"{here['load']:.2f} a core{busy}",
        "noise": f"two equal calls of {SHORT:g} ms differ by {100 * noise['pair_spread']:.1f} %, "
        f"and {noise['pairs']:.0f} pairs give their ratio to ±{100 * noise['reach']:.1f} %; see "
        "shardbench selftest",
    }
    tables = [
        table_of(machine.items(), text("machine", 0), text("", 1)),
        table_of(here["packages"].items(), code("library", 0, _LONGEST_NAME), text("version", 1)),
        table_of(
            document["releases"].items(),
            code("releases of", 0),
            text("are here", lambda row: ", ".join(row[1])),
            text("for more", lambda row: f"shardbench releases {row[0]} RELEASE"),
        ),
        table_of(
            document["skipped"],
            text("skipped", lambda row: "\n".join(row["names"]), _LONGEST_NAME),
            text("needs"),
            code("command that changes it", lambda row: row["command"] or None),
        ),
    ]
    parts: list[RenderableType] = []
    for table in tables:
        parts += [as_terminal(table), ""] if table.rows else []
    return Group(*parts[:-1] if document["skipped"] else (*parts, "Nothing is skipped."))
