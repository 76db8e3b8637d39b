"""The variant is found, and plans with real torchrec objects."""

from harness.contract import WorkloadSpec
from harness.contract.registry import load_registry
from harness.topologies.lookup import find_topology


def test_it_places_every_table_and_levels_memory():
    """What it is for: no rank holds more than with the partitioner that torchrec uses."""
    family = load_registry().find("embedding")
    problem = family.work.build(
        WorkloadSpec.parse("synthetic[tables=4]"), find_topology("dgx_h100", 8)
    )
    peaks = {}
    for name in ("upstream", "memory-balanced"):
        plan = family.find(name).prepared(problem).run()
        family.work.validate(problem, plan)
        peaks[name] = family.work.quality(problem, plan)["hbm_peak_fraction"]
    assert peaks["memory-balanced"] <= peaks["upstream"]
