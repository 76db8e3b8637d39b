"""Describe the environment of a measurement: code, package versions, machine and load."""

import hashlib
import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from harness.contract.registry import ENTRY_POINTS, family_modules
from harness.execution.git import run_git
from harness.model.cell import Environment
from harness.model.errors import ShardbenchError
from harness.model.machine import PACKAGES, installed_versions

_OWN = "shardbench"

MACHINE = "SHARDBENCH_MACHINE"
"""Names a class of machines, instead of the host's name and memory; for child processes too."""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def source_digest() -> str:
    """Return a short hash of the source files of the harness and of the families' packages."""
    packages = {module.partition(".")[0] for module in family_modules()}
    return digest_of(*sorted({"harness", *packages}))


@cache
def digest_of(*packages: str) -> str:
    """Return a short hash of the source files of packages."""
    digest = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(root).rglob("*")):
                if path.suffix in (".py", ".csv", ".gz", ".toml"):
                    digest.update(f"{package}/{path.relative_to(root).as_posix()}".encode())
                    digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def commit_of(package: str) -> str | None:
    """Return the commit of a package's sources, with a + if they differ; None outside of git."""
    spec = find_spec(package)
    for root in (spec and spec.submodule_search_locations) or ():
        with suppress(ShardbenchError):  # no repository, or no git
            if run_git(root, "ls-files", "--", "."):
                commit = run_git(root, "rev-parse", "--short=9", "HEAD")
                changed = run_git(root, "status", "--porcelain", "--", ".")
                return commit.decode().strip() + ("+" if changed else "")
    return None


@cache
def used_packages(package: str) -> tuple[str, ...]:
    """Return the distributions that a family's package uses.

    For a family of another distribution, these are that distribution and those that it requires.
    """
    for entry_point in metadata.entry_points(group=ENTRY_POINTS):
        made_by = entry_point.dist
        is_in = entry_point.module.partition(".")[0] == package.partition(".")[0]
        if is_in and made_by is not None and made_by.name != _OWN:
            required = map(Requirement, made_by.requires or ())
            used = [found.name for found in required if not found.marker or found.marker.evaluate()]
            return (made_by.name, *(name for name in used if name != _OWN))
    return PACKAGES


def environment(seed: int, package: str = "") -> Environment:
    """Return the code, the versions and the machine of this process; `seed` is copied into it.

    With `package`, a family's own, its source files are hashed separately as well, and the versions
    are of the packages that it uses.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gib = psutil.virtual_memory().total / 2**30
    machine = f"{platform.node()}\n{_processor()}\n{cores}\n{round(memory_gib)}"
    if name := os.environ.get(MACHINE):
        machine = f"{name}\n{_processor()}\n{cores}"
    return Environment(
        shardbench=metadata.version("shardbench"),
        code=source_digest(),
        family_code=digest_of(package) if package else None,
        commit=commit_of(package) if package else None,
        python=platform.python_version(),
        packages=installed_versions(used_packages(package)),
        system=f"{platform.system()} {platform.machine()}",
        machine=hashlib.sha256(machine.encode()).hexdigest()[:8],
        cpu=_processor(),
        cores=cores,
        memory_gib=round(memory_gib, 1),
        load=round(psutil.getloadavg()[0] / (cores or 1), 2),
        seed=seed,
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
