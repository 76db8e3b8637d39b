"""Parse the releases that a user names, and install each into a folder of its own."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.model.errors import ShardbenchError, UsageError

INSTALLED = "installed"
RELEASES_FOLDER = Path("upstreams/releases")

_INSTALL_SECONDS = 900.0
_INDEX_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """A release and the folder from which Python imports it.

    `missing` is a sentence with the reason if the release could not be installed, else empty.
    """

    release: str
    folder: Path = Path()
    missing: str = ""


def version_of(text: str) -> Version:
    """Parse a version. Raise UsageError if the text is not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(
            f"'{text}' is no release; write a version such as 1.5.0, a range such as 1.5.0..1.9.2, "
            f"or {INSTALLED}."
        ) from None


def releases_in(words: Iterable[str], on_index: Callable[[], Sequence[str]]) -> list[str]:
    """Return the releases that `words` name, oldest first, with `installed` last.

    A word is a version, a range or `installed`. The range `1.5.0..1.9.2` includes both ends and all
    releases on the index between them; either end may be omitted. `on_index` lists the index, for
    ranges only. Raise UsageError for any other word or an empty range.
    """
    words = list(words)
    has_range = any(".." in word for word in words)
    index = {Version(release): release for release in on_index()} if has_range else {}
    named: dict[Version, str] = {}
    for word in words:
        first, dots, last = word.partition("..")
        if dots:
            low, high = version_of(first or "0.dev0"), version_of(last) if last else None
            if high and low > high:
                raise UsageError(f"The range {word} ends before it begins.")
            within = {v: name for v, name in index.items() if low <= v and (not high or v <= high)}
            if not within:
                raise UsageError(f"There is no release in the range {word} on the index.")
            named = within | named
        elif word != INSTALLED:
            named.setdefault(version_of(word), word)
    return [named[version] for version in sorted(named)] + [INSTALLED] * (INSTALLED in words)


def releases_on_index(library: str) -> list[str]:
    """Return the final releases of a library on pip's index that suit this interpreter.

    Raise ShardbenchError if pip fails or does not answer in time.
    """
    what = f"The package index does not say which releases of {library} there are"
    printed = _pip(what, _INDEX_SECONDS, "index", "versions", library)
    listed = re.search(r"^Available versions: (.+)$", printed, re.MULTILINE)
    # A local version such as 2.13.0+cpu is a build of a release, not another one.
    return [name.strip() for name in listed[1].split(",") if "+" not in name] if listed else []


def kept_releases(library: str, folder: Path) -> list[str]:
    """Return the releases of a library that have a folder `LIBRARY-RELEASE` in `folder`."""
    prefix = f"{library}-"
    return [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*") if path.is_dir()]


def installed_place(library: str) -> Place:
    """Return the installed release and its folder. Raise UsageError if none is installed."""
    try:
        distribution = metadata.distribution(library)
    except metadata.PackageNotFoundError:
        raise UsageError(f"{library} is not installed here.") from None
    return Place(distribution.version, Path(str(distribution.locate_file(""))).resolve())


def given_place(library: str, text: str) -> Place:
    """Parse `VERSION=FOLDER`. Raise UsageError if the folder does not contain the version.

    A folder with a local build, such as 2.13.0+cpu, contains its release, 2.13.0.
    """
    release, _, path = text.partition("=")
    if not (release and path):
        raise UsageError(f"--at must be VERSION=FOLDER, not '{text}'.")
    version, folder = version_of(release), Path(path).absolute()
    distributions = metadata.distributions(name=library, path=[str(folder)])
    build = next((distribution.version for distribution in distributions), None)
    if build is None:
        raise UsageError(f"{path} does not hold {library}; name the folder it is imported from.")
    if version not in (Version(build), Version(Version(build).public)):
        raise UsageError(f"{path} holds {library} {build}, not {release}.")
    return Place(release, folder)


def install(library: str, release: str, folder: Path) -> Place:
    """Install a release without its dependencies into `folder`, unless it is already there.

    pip writes into a temporary folder, which is renamed to `LIBRARY-RELEASE` when complete. Raise
    ShardbenchError if pip fails, or if the folder cannot be written.
    """
    place = Place(release, folder.absolute() / f"{library}-{release}")
    if place.folder.is_dir():
        return place
    what = f"{library} {release} could not be installed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.folder.name}-", dir=folder) as partial:
            options = ("--quiet", "--no-input", "--no-deps", "--only-binary", ":all:")
            named = ("--target", f"{partial}/library", f"{library}=={release}")
            _pip(what, _INSTALL_SECONDS, "install", *options, *named)
            Path(partial, "library").replace(place.folder)
    except OSError as error:
        if not place.folder.is_dir():  # another process may have installed it meanwhile
            raise ShardbenchError(f"{what} into {folder}: {error.strerror or error}.") from None
    return place


def _pip(what: str, seconds: float, *arguments: str) -> str:
    """Run pip and return its output; `what` begins the sentence of a ShardbenchError."""
    command = [sys.executable, "-m", "pip", *arguments]
    try:
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--retries", "1"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ShardbenchError(f"{what}: pip took longer than {seconds:.0f} s.") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR:").strip() for line in lines if "ERROR:" in line]
        reason = (errors or lines or ["pip gives no reason"])[-1]
        # pip lists all versions before it names the error.
        reason = re.sub(r"\s*\(from versions: [^)]*\)", "", reason).rstrip(".")
        raise ShardbenchError(f"{what}: {reason}.")
    return done.stdout
