"""The memory limit of this machine or container, and the installed versions of libraries."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath

GIB = 2**30

_SHARE_OF_MACHINE = 0.9
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def default_memory_gib() -> float:
    """Return 90 % of the machine's or container's memory in GiB, rounded to two digits.

    The limit is part of the settings, and results with different settings are measured again.
    Rounding keeps it equal if the memory differs slightly.
    """
    import psutil

    total = psutil.virtual_memory().total
    for path in _memory_limits():
        with suppress(OSError, ValueError):  # no such group here, or "max"
            total = min(total, int(path.read_text()))
    return float(f"{_SHARE_OF_MACHINE * total / GIB:.2g}")


def _memory_limits() -> Iterator[Path]:
    """Yield the files with the memory limits of this process's cgroup and of its ancestors.

    A process is killed when any of these groups passes its limit, whatever the machine's memory.
    Each line of /proc/self/cgroup is `hierarchy:controllers:path`, with no controllers for
    version 2: cgroups(7). In a container the path may be the host's; the root is then its own.
    """
    lines = ["0::/", "1:memory:/"]
    with suppress(OSError):
        lines += _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines):
        group = PurePosixPath(path.lstrip("/"))
        for ancestor in (group, *group.parents):
            if not controllers:
                yield _CGROUPS / ancestor / "memory.max"
            elif "memory" in controllers.split(","):
                yield _CGROUPS / "memory" / ancestor / "memory.limit_in_bytes"


PACKAGES = ("torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu", "numpy", "numba", "scipy")
"""The packages that shardbench's own planners use."""


def installed_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of those packages that are installed, by package name."""
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
