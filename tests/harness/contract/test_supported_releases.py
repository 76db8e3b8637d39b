"""A drop-in works on the releases it was tested with, and warns once on any other release."""

import warnings

import pytest

from harness.contract import supported_releases
from harness.contract.supported_releases import SupportedReleases, UnsupportedRelease

TESTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(supported_releases, "_said", set())


@pytest.mark.parametrize("release", ["2.13.0", "2.13.0+cpu", "2.15.0+cu130"])
def test_a_build_of_a_tested_release_is_that_release(release):
    assert TESTED.include(release)
    assert TESTED.allow("accelerate()", release, any_release=False)


@pytest.mark.parametrize("release", ["2.14.0", "2.13.1", "2.13.0a0+git1", "2.13", "of our own", ""])
def test_all_others_are_refused(release):
    with pytest.warns(UnsupportedRelease) as warned:
        assert not TESTED.allow("accelerate()", release, any_release=False)
    assert str(warned[0].message) == (
        f"accelerate() was tested with torch 2.13.0, 2.15.0, not with {release}: torch's own code "
        "runs instead. any_release=True insists."
    )


def test_the_warning_comes_once(recwarn):
    warnings.simplefilter("always")
    for _ in range(3):
        TESTED.allow("accelerate()", "2.14.0", any_release=False)
    assert len(recwarn) == 1
