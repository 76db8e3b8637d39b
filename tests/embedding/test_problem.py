"""Problems are built around torchrec's traps, and memory settings bind as they say."""

import re

import pytest

from harness.contract import UsageError, WorkloadSpec
from harness.topologies.lookup import find_topology, presets
from planners.embedding.problem import build, torchrec_topology
from planners.embedding.tables.torchrec_objects import RESERVED_FRACTION


def problem(workload: str, topology: str = "dgx_a100_80gb", gpus: int = 16):
    return build(WorkloadSpec.parse(workload), find_topology(topology, gpus))


def test_bandwidths_and_capacities_reach_torchrec():
    preset = find_topology("dgx_h100", 16)
    topology = torchrec_topology(preset)
    assert topology.intra_host_bw == preset.intra_host_bw == 450e6
    assert topology.inter_host_bw == preset.inter_host_bw
    assert topology.hbm_mem_bw == preset.hbm_bw == 3350e6
    assert topology.hbm_to_ddr_mem_bw == preset.hbm_to_ddr_bw
    assert [device.storage.hbm for device in topology.devices] == [preset.hbm_bytes] * 16
    assert [device.storage.ddr for device in topology.devices] == [preset.ddr_bytes] * 16
    assert (topology.local_world_size, topology.intra_group_size) == (8, 8)


def test_an_nvlink_domain_of_many_hosts_is_one_large_host():
    topology = torchrec_topology(find_topology("gb200_nvl72_tray4", 144))
    assert topology.local_world_size == topology.intra_group_size == 72


def test_part_of_a_domain_is_a_small_host():
    assert torchrec_topology(find_topology("gb200_nvl72_tray4", 16)).local_world_size == 16


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_becomes_a_topology_of_torchrec(name):
    domain = presets()[name].domain_size
    topology = torchrec_topology(find_topology(name, 2 * domain))
    assert topology.world_size // topology.intra_group_size == 2


def test_direct_construction_is_avoided(caplog):
    torchrec_topology(find_topology("dgx_h100", 8))
    assert "constructed directly" not in caplog.text


@pytest.mark.parametrize(("memory", "share"), [("roomy", 0.4), ("tight", 2.0), ("mixed", 2.0)])
def test_memory_settings_scale_the_tables_to_the_usable_hbm(memory, share):
    built = problem(f"synthetic[tables=20,seed=3,memory={memory}]")
    usable = sum(built.usable_hbm)
    assert sum(table.bytes for table in built.tables) == pytest.approx(share * usable, rel=1e-3)
    assert built.memory == memory


def test_only_mixed_limits_the_host_memory():
    tight = problem("synthetic[tables=20,seed=3,memory=tight]")
    mixed = problem("synthetic[tables=20,seed=3,memory=mixed]")
    held = sum(table.bytes for table in mixed.tables)
    assert tight.usable_ddr == (find_topology("dgx_a100_80gb", 16).ddr_bytes,) * 16
    assert sum(mixed.usable_ddr) < held, "host memory alone must not hold all tables"
    assert sum(mixed.usable_ddr) + sum(mixed.usable_hbm) > held


def test_the_usable_hbm_is_what_torchrec_leaves_after_its_reservation():
    built = problem("synthetic[tables=3]")
    reserved = built.storage_reservation().reserve(
        built.topology, 512, built.module, built.sharders, built.constraints
    )
    assert tuple(device.storage.hbm for device in reserved.devices) == built.usable_hbm
    assert tuple(device.storage.ddr for device in reserved.devices) == built.usable_ddr
    hbm = built.topology.devices[0].storage.hbm
    assert set(built.usable_hbm) == {int((1 - RESERVED_FRACTION) * hbm)}


def test_facts_begin_with_the_size_and_say_what_is_assigned():
    facts = problem("dlrm-856[tables=4,seed=1]").facts()
    assert next(iter(facts.items())) == ("tables", 4)
    assert facts["assigned"] == "dimension, pooling factor"


def test_features_and_types_reach_the_module(tmp_path):
    file = tmp_path / "tables.csv"
    file.write_text("name,rows,dim,pooling_factor,dtype\nshared,100,8,1|10,fp16\nplain,5,4,2,\n")
    built = problem(str(file))
    shared, plain = built.module.embedding_bag_configs()
    assert len(shared.feature_names) == 2
    assert built.constraints["shared"].pooling_factors == [1.0, 10.0]
    assert (shared.data_type.value, plain.data_type.value) == ("FP16", "FP32")


@pytest.mark.parametrize("name", ["type", "items", "keys", "named_modules"])
def test_a_name_that_torch_takes_for_itself_is_said_with_another_to_take(tmp_path, name):
    file = tmp_path / "tables.csv"
    file.write_text(f"name,rows,dim,pooling_factor\nuser,10,8,1\n{name},100,8,1\n")
    with pytest.raises(
        UsageError, match=rf"be called '{name}'.*ModuleDict.*'{name}_table'"
    ) as said:
        problem(str(file))
    assert {"items", "keys", "values"} <= set(re.findall(r"\w+", str(said.value)))
    file.write_text(file.read_text().replace(f"\n{name},", f"\n{name}_table,"))
    assert len(problem(str(file)).tables) == 2
