"""Install each release of a library into a separate folder, completely or not at all."""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from harness.model.errors import ShardbenchError, UsageError
from harness.series.naming import installed_release, is_build_of, pip_reason, version_of
from harness.store.lines import hold

_INSTALL_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Place:
    """A release and the folder from which Python imports it.

    `missing` is a sentence with the reason if the release could not be installed, else empty.
    """

    release: str
    folder: Path = Path()
    missing: str = ""


def kept_releases(library: str, folder: Path) -> list[str]:
    """Return the releases of a library that have a folder `LIBRARY-RELEASE` in `folder`."""
    if not folder.is_dir():
        return []
    prefix = f"{library}-"
    return [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*") if path.is_dir()]


def installed_place(library: str) -> Place:
    """Return the installed release and its folder. Raise UsageError if none is installed."""
    release = installed_release(library)
    folder = Path(str(metadata.distribution(library).locate_file(""))).resolve()
    return Place(release, folder)


def given_place(library: str, text: str) -> Place:
    """Parse `VERSION=FOLDER`. Raise UsageError if the folder does not contain the version.

    `pip install --target FOLDER` makes such a folder.
    """
    release, _, path = text.partition("=")
    if not (release and path):
        raise UsageError(f"--at must be VERSION=FOLDER, not '{text}'.")
    version_of(release)  # raises UsageError if it is no version
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise UsageError(f"{path} is no folder, so {library} {release} cannot be there.")
    held = _held(library, folder)
    if held is None:
        raise UsageError(f"{path} does not hold {library}; name the folder it is imported from.")
    if not is_build_of(held, release):
        raise UsageError(f"{path} holds {library} {held}, not {release}.")
    return Place(release, folder)


def install(library: str, release: str, folder: Path) -> Place:
    """Install a release without its dependencies into `folder`, unless it is already there.

    pip writes into a temporary folder, which is renamed to `LIBRARY-RELEASE` when complete. If the
    process is killed, the next installation of the release removes the temporary folder. Raise
    ShardbenchError if pip fails, if the folder cannot be written, or if another process is
    installing the same release.
    """
    place = Place(release, folder.absolute() / f"{library}-{release}")
    if place.folder.is_dir():
        return place
    parent, hidden = place.folder.parent, f".{place.folder.name}"
    with hold(parent / hidden):
        try:
            if not place.folder.is_dir():
                # A new name each time, because pip may outlive a killed installation and write on.
                partial = Path(tempfile.mkdtemp(".partial", f"{hidden}.", parent))
                _pip(library, release, partial)
                partial.chmod(0o755)
                partial.replace(place.folder)
        except OSError as error:
            raise ShardbenchError(
                f"{library} {release} cannot be installed into {place.folder}: "
                f"{error.strerror or error}."
            ) from None
        finally:
            for left in parent.glob(f"{hidden}.*.partial"):
                shutil.rmtree(left, ignore_errors=True)
    return place


def _pip(library: str, release: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--quiet", "--retries", "1", "--no-deps", "--only-binary", ":all:"]
    process = subprocess.Popen(
        [*command, "--target", str(target), f"{library}=={release}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, printed = process.communicate(timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise ShardbenchError(
            f"{library} {release} was not installed within {_INSTALL_SECONDS:.0f} s."
        ) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise ShardbenchError(f"{library} {release} could not be installed: {pip_reason(printed)}")
    if _held(library, target) is None:
        raise ShardbenchError(f"pip installed something else than {library} {release}.")


def _held(library: str, folder: Path) -> str | None:
    found = metadata.distributions(name=library, path=[str(folder)])
    return next((distribution.version for distribution in found), None)
