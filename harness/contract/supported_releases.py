"""Run a drop-in only on releases that it was tested with; on others upstream's own code runs."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

_said: set[str] = set()


class UnsupportedRelease(UserWarning):
    """Warn that a drop-in was not tested with the installed release, so upstream's code runs."""


@dataclass(frozen=True, slots=True)
class SupportedReleases:
    """The releases of a library that a drop-in was tested with.

    Attributes:
        library: The library's name on the package index.
        releases: The tested releases, oldest first, such as `1.9.2`.
    """

    library: str
    releases: Sequence[str]

    def include(self, installed: str) -> bool:
        """Return whether a release was tested; a build such as `2.13.0+cpu` counts as `2.13.0`."""
        try:
            return Version(installed).public in self.releases
        except InvalidVersion:
            return False

    def allow(self, drop_in: str, installed: str, *, any_release: bool) -> bool:
        """Return whether a drop-in may run on a release; if not, warn once per process.

        `drop_in` is its name in the warning, such as `accelerate()`. If `any_release` is True, the
        drop-in may run on every release.
        """
        if any_release or self.include(installed):
            return True
        text = (
            f"{drop_in} was tested with {self.library} {', '.join(self.releases)}, not with "
            f"{installed}: {self.library}'s own code runs instead. any_release=True insists."
        )
        if text not in _said:
            _said.add(text)
            warnings.warn(text, UnsupportedRelease, stacklevel=3)
        return False
