"""Commands without --family take the only family that knows the workload."""

from dataclasses import replace

import pytest
import toy_registries

from harness.contract.registry import Registry
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from shardbench.problems import able_family


def family_of(workload: str) -> str:
    (family,) = toy_registries.bounded_registry().families

    def known(name: str):
        def label(spec: WorkloadSpec) -> WorkloadSpec:
            if not spec.name.startswith(name):
                raise UsageError(f"Unknown workload; did you mean {name}?")
            return spec

        return replace(family, name=name, label=label)

    families = Registry([known("cat"), known("cattle"), known("dog")])
    spec = WorkloadSpec.parse(workload)
    return able_family(families, "", "planning", "plan", spec).name


def test_a_workload_of_one_family_needs_no_name():
    """The only family that knows the workload is taken."""
    assert family_of("dog") == "dog"
    assert family_of("cat[size=3]") == "cat"


def test_one_of_two_families_or_of_none_is_refused():
    """Two families that know a workload need a name."""
    with pytest.raises(UsageError, match="Name a family"):
        family_of("cattle")
    with pytest.raises(UsageError, match="did you mean"):
        family_of("bird")
