"""Parse the releases that a user names: versions, ranges, and `installed`."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata

from packaging.version import InvalidVersion, Version

from harness.model.errors import ShardbenchError, UsageError

INSTALLED = "installed"
_INDEX_SECONDS = 120.0


def releases_in(words: Iterable[str], on_index: Callable[[], Sequence[str]]) -> list[str]:
    """Return the releases that `words` name, oldest first, with `installed` last.

    A word is a version, a range or `installed`. The range `1.5.0..1.9.2` includes both ends and all
    releases on the index between them; either end may be omitted. `on_index` lists the index; it is
    called at most once, for the first range. Raise UsageError for any other word or an empty range.
    """
    found: dict[Version, str] = {}
    known: list[str] | None = None
    installed = False
    for word in words:
        if word == INSTALLED:
            installed = True
        elif ".." in word:
            if known is None:
                known = list(on_index())
            for release in _within(word, known):
                found.setdefault(Version(release), release)
        else:
            found.setdefault(version_of(word), word)
    ordered = [found[version] for version in sorted(found)]
    return ordered + [INSTALLED] * installed


def version_of(text: str) -> Version:
    """Parse a version. Raise UsageError if the text is not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(
            f"'{text}' is no release; write a version such as 1.5.0, a range such as 1.5.0..1.9.2, "
            f"or {INSTALLED}."
        ) from None


def is_build_of(held: str, release: str) -> bool:
    """Return whether `held` is `release` or a local build of it, such as 2.13.0+cpu of 2.13.0."""
    version = version_of(held)
    return version_of(release) in (version, Version(version.public))


def _within(word: str, known: Iterable[str]) -> list[str]:
    first, _, last = word.partition("..")
    low, high = (version_of(end) if end else None for end in (first, last))
    if low and high and low > high:
        raise UsageError(f"The range {word} ends before it begins.")
    chosen = [
        release
        for release in known
        if (low is None or low <= Version(release)) and (high is None or Version(release) <= high)
    ]
    if not chosen:
        raise UsageError(f"There is no release in the range {word} on the index.")
    return chosen


def releases_on_index(library: str) -> list[str]:
    """Return the final releases of a library on pip's index that suit this interpreter.

    Raise ShardbenchError if pip fails or does not answer in time.
    """
    ask = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*ask, "--retries", "1", library],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INDEX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ShardbenchError(
            f"The package index did not say within {_INDEX_SECONDS:.0f} s which releases of "
            f"{library} there are."
        ) from None
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or listed is None:
        raise ShardbenchError(
            f"The package index does not say which releases of {library} there are: "
            f"{pip_reason(done.stderr)}"
        )
    # A local version such as 2.13.0+cpu is a build of a release, not another one.
    return [release.strip() for release in listed[1].split(",") if "+" not in release]


def pip_reason(printed: str) -> str:
    """Extract the reason for a failure from pip's error output, as one sentence."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["pip gives no reason"])[-1]
    # pip lists all versions before it names the error.
    reason = re.sub(r"\s*\(from versions: [^)]*\)", "", reason)
    return reason.rstrip(".") + "."


def installed_release(library: str) -> str:
    """Return the installed version of a library. Raise UsageError if it is not installed."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        raise UsageError(f"{library} is not installed here.") from None
