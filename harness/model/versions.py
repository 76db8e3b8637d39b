"""The installed versions of the libraries that planners work with."""

from importlib import metadata

_PACKAGES = ("torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu", "numpy", "numba", "scipy")


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that decide how a planner behaves."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
