"""Releases in folders of their own: whole or not there."""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from harness.model.errors import ShardbenchError, UsageError
from harness.series.naming import (
    INSTALLED,
    installed_release,
    is_build_of,
    pip_reason,
    version_of,
)
from harness.store.lock import hold

_INSTALL_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a release is imported from, and who put it there.

    `by` is `index` for one that was installed from the index, `installed` for this environment's,
    and `given` for a folder that the user named.
    """

    release: str
    folder: Path
    by: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A release that could not be installed, and why, as a sentence."""

    release: str
    reason: str


def kept_releases(library: str, folder: Path) -> list[str]:
    """Return the releases of a library that a folder holds, by the names of their folders."""
    if not folder.is_dir():
        return []
    beginning = f"{library}-"
    names = [each.name for each in folder.iterdir() if each.is_dir()]
    return [name.removeprefix(beginning) for name in names if name.startswith(beginning)]


def installed_place(library: str) -> Place:
    """Return the release of this environment; raises UsageError where there is none."""
    release = installed_release(library)
    folder = Path(str(metadata.distribution(library).locate_file(""))).resolve()
    return Place(release, folder, INSTALLED)


def given_place(library: str, text: str) -> Place:
    """Return the release of `VERSION=FOLDER`, as `pip --target` leaves it, or raise UsageError."""
    release, _, path = text.partition("=")
    if not (release and path):
        raise UsageError(f"--at must be VERSION=FOLDER, not '{text}'.")
    version_of(release)  # raises where it is none
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise UsageError(f"{path} is no folder, so {library} {release} cannot be there.")
    held = _held(library, folder)
    if held is None:
        raise UsageError(f"{path} does not hold {library}; name the folder it is imported from.")
    if not is_build_of(held, release):
        raise UsageError(f"{path} holds {library} {held}, not {release}.")
    return Place(release, folder, "given")


def install(library: str, release: str, folder: Path) -> Place:
    """Install a release without what it depends on, unless it is there; whole or not at all.

    pip writes into a folder beside, which becomes `LIBRARY-RELEASE` in `folder` when it is
    complete. What a killed installation left is removed by the next one of the same release. Raises
    ShardbenchError where pip failed, and said why; where the folder cannot be written; or where
    another process installs the same.
    """
    place = Place(release, folder.absolute() / f"{library}-{release}", "index")
    if place.folder.is_dir():
        return place
    beside, hidden = place.folder.parent, f".{place.folder.name}"
    with hold(beside / hidden):
        try:
            if not place.folder.is_dir():
                # A name of its own: what was killed may have left a pip that still writes.
                partial = Path(tempfile.mkdtemp(".partial", f"{hidden}.", beside))
                _pip(library, release, partial)
                partial.chmod(0o755)
                partial.replace(place.folder)
        except OSError as error:
            raise ShardbenchError(
                f"{library} {release} cannot be installed into {place.folder}: "
                f"{error.strerror or error}."
            ) from None
        finally:
            for left in beside.glob(f"{hidden}.*.partial"):
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
    return next((each.version for each in found), None)
