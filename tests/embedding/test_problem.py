"""Problems pass the right figures to torchrec; memory settings scale tables and host memory."""

import pytest
from built_problem import problem

from harness.contract import UsageError
from harness.topologies.lookup import find_topology, presets
from planners.embedding.problem import torchrec_topology


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


@pytest.mark.parametrize(("gpus", "host"), [(144, 72), (16, 16)])
def test_an_nvlink_domain_of_many_hosts_is_one_large_host_and_a_part_a_smaller_one(gpus, host):
    topology = torchrec_topology(find_topology("gb200_nvl72_tray4", gpus))
    assert topology.local_world_size == topology.intra_group_size == host


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_becomes_a_topology_of_torchrec_without_a_warning(name, caplog):
    topology = torchrec_topology(find_topology(name, 2 * presets()[name].domain_size))
    assert topology.world_size // topology.intra_group_size == 2
    assert "constructed directly" not in caplog.text


@pytest.mark.parametrize(("memory", "share"), [("roomy", 0.4), ("tight", 2.0), ("mixed", 2.0)])
def test_memory_settings_scale_the_tables_and_only_mixed_limits_the_host_memory(memory, share):
    built = problem(f"synthetic[tables=20,seed=3,memory={memory}]")
    size, usable = sum(table.bytes for table in built.tables), sum(built.usable_hbm)
    assert size == pytest.approx(share * usable, rel=1e-3)
    if memory == "mixed":
        assert sum(built.usable_ddr) < size < sum(built.usable_ddr) + usable
    else:
        assert built.usable_ddr == (find_topology("dgx_a100_80gb", 16).ddr_bytes,) * 16


def test_the_usable_memory_is_what_torchrec_leaves_after_its_reservation():
    built = problem("synthetic[tables=3]")
    left = [device.storage for device in built.reserved().devices]
    assert tuple(storage.hbm for storage in left) == built.usable_hbm
    assert tuple(storage.ddr for storage in left) == built.usable_ddr


def test_features_and_types_reach_the_module_and_reserved_names_are_refused(tmp_path):
    file = tmp_path / "tables.csv"
    file.write_text("name,rows,dim,pooling_factor,dtype\nshared,100,8,1|10,fp16\nplain,5,4,2,\n")
    built = problem(str(file))
    shared, plain = built.module.embedding_bag_configs()
    assert len(shared.feature_names) == 2
    assert built.constraints["shared"].pooling_factors == [1.0, 10.0]
    assert (shared.data_type.value, plain.data_type.value) == ("FP16", "FP32")
    for name in ("type", "items", "named_modules"):
        file.write_text(f"name,rows,dim,pooling_factor\nuser,10,8,1\n{name},100,8,1\n")
        with pytest.raises(UsageError, match=rf"'{name}'.*'{name}_table'"):
            problem(str(file))
