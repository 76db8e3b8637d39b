"""Drop-ins run on the releases they were tested with; on all others upstream's own code does."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

_said: set[str] = set()


class UnsupportedRelease(UserWarning):
    """A drop-in leaves the work to upstream, since it was not tested with that release."""


@dataclass(frozen=True, slots=True)
class SupportedReleases:
    """The releases of a library that a drop-in was tested with.

    Attributes:
        library: Its name on the index.
        releases: Its releases, oldest first, as `1.9.2`.
    """

    library: str
    releases: Sequence[str]

    def include(self, installed: str) -> bool:
        """Return whether a release is among them; a build such as `2.13.0+cpu` is `2.13.0`."""
        try:
            return Version(installed).public in self.releases
        except InvalidVersion:
            return False

    def allow(self, drop_in: str, installed: str, *, any_release: bool) -> bool:
        """Return whether a drop-in runs on a release; warn once a process if it does not.

        `drop_in` is its name for users, as `accelerate()`; `any_release` runs it on every release.
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
