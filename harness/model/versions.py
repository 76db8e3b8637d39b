"""The installed versions of the libraries that planners depend on."""

from collections.abc import Iterable
from importlib import metadata

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
