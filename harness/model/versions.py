"""The installed versions of the libraries that planners depend on."""

from importlib import metadata

_PACKAGES = ("torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu", "numpy", "numba", "scipy")


def installed_versions() -> dict[str, str]:
    """Return the versions of installed packages that affect planners, by package name."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
