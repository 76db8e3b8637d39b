"""`shardbench doctor`: show which parts work on this machine, and how to install others."""

import click
from msgspec.structs import replace

from harness.contract.registry import Registry
from harness.measuring.environment import environment
from harness.measuring.selftest import SHORT, SelfTest, selftest
from harness.model.settings import Settings
from harness.series.installing import INSTALLED, kept_releases
from harness.series.points import libraries
from harness.topologies import probe
from shardbench import options
from shardbench.command import command
from shardbench.commands.releases import DEFAULT_FOLDER
from shardbench.display.diagnosis import Diagnosis, Skipped
from shardbench.progress import progress_display

_BUDGET = 60.0
_NO_GPU = Skipped(
    ["topology capture of this machine"],
    "a GPU",
    "shardbench topology capture --from-topo FILE",
)


@command("shardbench doctor")
@click.option(
    "--seconds",
    type=options.POSITIVE,
    default=3.0,
    help="Seconds to spend on how noisy this machine is.",
)
@options.json
def doctor(seconds: float, json: str) -> None:
    """Show which parts work here, and how to install the others.

    Lists libraries, releases, GPUs and cores, and measures the noise of this machine: it compares
    equal calls with each other for some seconds.
    """
    registry = options.found_registry()
    gpus, no_gpu = probe.read_gpus()
    found = Diagnosis(
        environment=environment(0),
        gpus=[gpu.name for gpu in gpus],
        no_gpu=no_gpu,
        releases={
            library: [INSTALLED, *kept_releases(library, DEFAULT_FOLDER)]
            for library in libraries(registry, "releases")
        },
        skipped=[*_skipped(registry), *([] if gpus else [_NO_GPU])],
        noise=_noise(options.settings_of(_BUDGET, seconds, 0)),
    )
    options.show_or_write(json, found.document(), found.shown())


def _skipped(registry: Registry) -> list[Skipped]:
    """Return the unavailable variants and families, grouped by need, with install commands."""
    by_need: dict[str, list[str]] = {}
    for family in registry.families:
        for variant in family.variants.values():
            for need in variant.missing():
                by_need.setdefault(need, []).append(f"{family.name}/{variant.name}")
    for name, reason in registry.failures.items():
        by_need.setdefault(reason, []).append(f"family {name}")
    return [Skipped(names, *_remedy(need)) for need, names in by_need.items()]


def _remedy(need: str) -> tuple[str, str]:
    """Split a need into its name and its install command, "" if there is none."""
    what, _, command = need.removesuffix(")").partition(" (")
    if command:
        return what, command
    return what, f"pip install {what}" if what.replace("_", "").isalnum() else ""


def _noise(settings: Settings) -> SelfTest:
    """Compare equal calls of some milliseconds, within the time limit of the settings."""
    settings = replace(settings, sampling=replace(settings.sampling, warmup_seconds=0.5))
    with progress_display("") as listen:
        rounds = list(selftest(1, settings, listen=listen, added=(0,)))
    return SelfTest.of(rounds, SHORT / 1000, 0.0)
