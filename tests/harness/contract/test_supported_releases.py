"""A drop-in works on the releases it was tested with, and warns once on any other release."""

import warnings

import pytest

from harness.contract import supported_releases
from harness.contract.supported_releases import SupportedReleases

TESTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))


@pytest.mark.parametrize(
    ("release", "is_tested"),
    [
        *((release, True) for release in ("2.13.0", "2.13.0+cpu", "2.15.0+cu130")),
        *((release, False) for release in ("2.14.0", "2.13.1", "2.13.0a0+git1", "2.13", "own", "")),
    ],
)
def test_a_build_of_a_tested_release_is_that_release_and_others_warn_once(
    monkeypatch, recwarn, release, is_tested
):
    """The warning names the tested releases."""
    warnings.simplefilter("always")
    monkeypatch.setattr(supported_releases, "_said", set())
    for _ in range(3):
        assert TESTED.allow("accelerate()", release, any_release=False) == is_tested
    said = [f"accelerate() was tested with torch 2.13.0, 2.15.0, not with {release}: torch's own"]
    assert [str(warned.message)[: len(said[0])] for warned in recwarn] == said * (not is_tested)
