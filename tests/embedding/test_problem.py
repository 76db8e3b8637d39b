"""Problems pass the right figures to torchrec; memory settings scale tables and host memory."""

import pytest
from built_problem import problem

from harness.contract import UsageError
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology, presets
from planners.embedding import FAMILY
from planners.embedding.problem import torchrec_topology
from planners.embedding.workloads.catalog import load_tables


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_becomes_a_topology_of_torchrec_without_a_warning(name, caplog):
    """An NVLink domain of many hosts is one large host."""
    preset = find_topology(name, 2 * presets()[name].domain_size)
    topology = torchrec_topology(preset)
    assert topology.world_size == preset.gpus
    assert topology.local_world_size == topology.intra_group_size == preset.gpus // 2
    assert topology.hbm_mem_bw == preset.hbm_bw
    assert topology.hbm_to_ddr_mem_bw == preset.hbm_to_ddr_bw
    assert topology.intra_host_bw == preset.intra_host_bw
    assert preset.inter_host_bw in (None, topology.inter_host_bw)
    for device in topology.devices:
        assert device.storage.hbm == preset.hbm_bytes
        assert preset.ddr_bytes in (None, device.storage.ddr)
    assert "constructed directly" not in caplog.text


def test_a_part_of_an_nvlink_domain_is_a_smaller_host():
    """Sixteen GPUs of a rack are one host of sixteen."""
    topology = torchrec_topology(find_topology("gb200_nvl72_tray4", 16))
    assert topology.local_world_size == topology.intra_group_size == 16


@pytest.mark.parametrize(("memory", "share"), [("roomy", 0.4), ("tight", 2.0), ("mixed", 2.0)])
def test_memory_settings_scale_the_tables_and_only_mixed_limits_the_host_memory(memory, share):
    """`share` is that of the tables in the usable HBM."""
    built = problem(f"synthetic[tables=20,seed=3,memory={memory}]")
    size, usable = sum(table.bytes for table in built.tables), sum(built.usable_hbm)
    assert size == pytest.approx(share * usable, rel=1e-3)
    if memory == "mixed":
        assert sum(built.usable_ddr) < size < sum(built.usable_ddr) + usable
    else:
        assert built.usable_ddr == (find_topology("dgx_a100_80gb", 16).ddr_bytes,) * 16


def test_the_usable_memory_is_what_torchrec_leaves_after_its_reservation():
    """This goes for HBM and host memory."""
    built = problem("synthetic[tables=3]")
    left = [device.storage for device in built.reserved().devices]
    assert tuple(storage.hbm for storage in left) == built.usable_hbm
    assert tuple(storage.ddr for storage in left) == built.usable_ddr


def test_features_and_types_reach_the_module_and_reserved_names_are_refused(tmp_path):
    """The refusal proposes another name."""
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


def test_all_problems_and_variants_of_its_studies_exist():
    """Their names are parsed as a user's are."""
    for text in (*FAMILY.benchmarks, *(study.problem for study in FAMILY.studies)):
        named = ProblemId.parse(text)
        assert load_tables(named.workload)
        assert find_topology(named.topology, named.gpus).gpus == named.gpus
    for study in FAMILY.studies:
        assert [FAMILY.find(name).name for name in study.variants] == list(study.variants)
