"""The traps of topologies: each is seen, and what is clean is told to be clean."""

from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.errors import UsageError
from harness.topologies.csv_files import (
    Written,
    read_rows,
    read_topologies,
    read_torchrec_arguments,
)
from harness.topologies.lookup import presets
from harness.topologies.traps import Finding, check

H100 = {
    "name": "mine",
    "gpu": "H100 SXM",
    "gpus_per_host": "8",
    "hosts_per_nvlink_domain": "1",
    "hbm_bytes": "85020639232",
    "ddr_bytes": "274877906944",
    "intra_host_bw": "450000000",
    "inter_host_bw": "50000000",
    "hbm_bw": "3350000000",
    "hbm_to_ddr_bw": "31500000",
}
GB200 = H100 | {
    "gpu": "NVIDIA GB200",
    "gpus_per_host": "4",
    "hosts_per_nvlink_domain": "18",
    "hbm_bytes": "197283282944",
    "intra_host_bw": "900000000",
    "hbm_bw": "8000000000",
    "hbm_to_ddr_bw": "225000000",
}


def as_csv(row: dict[str, str]) -> str:
    return ",".join(row) + "\n" + ",".join(row.values()) + "\n"


def found(row: dict[str, str], gpus: int | None = None) -> list[Finding]:
    return check(read_rows(as_csv(row), "mine.csv")[0], gpus)


def test_clean_rows_are_clean():
    assert found(H100, 64) == []
    assert found(GB200, 144) == []


def test_presets_say_only_what_is_true():
    text = (
        resources.files("harness.topologies")
        .joinpath("data/topologies.csv")
        .read_text(encoding="utf-8")
    )
    rows = read_rows(text, "topologies.csv")
    assert [row.cells["name"] for row in rows] == list(presets())
    assert [finding for row in rows for finding in check(row)] == []
    told = {row.cells["name"] for row in rows if check(row, 144)}
    assert told == {name for name, preset in presets().items() if preset.inter_host_bw is None}
    told = {row.cells["name"]: check(row, 64) for row in rows}
    for name in ("gb200_nvl72_tray4", "gb200_meta_2x36"):
        (finding,) = told[name]
        assert finding.wrong == "a domain of 72 GPUs is larger than the world of 64"


@pytest.mark.parametrize(
    ("row", "change", "gpus", "column", "wrong", "write"),
    [
        (
            H100,
            {"intra_host_bw": "900000000"},
            None,
            "intra_host_bw",
            "both ways together",
            "450000000",
        ),
        (
            H100,
            {"intra_host_bw": "966367642"},
            None,
            "intra_host_bw",
            "both ways together",
            "450000000",
        ),
        (
            H100,
            {"intra_host_bw": "483183821"},
            None,
            "intra_host_bw",
            "taken for GiB/s",
            "450000000",
        ),
        (
            H100,
            {"intra_host_bw": "600000000"},
            None,
            "intra_host_bw",
            "more than the GPU has",
            "450000000",
        ),
        (
            H100,
            {"intra_host_bw": "450"},
            None,
            "intra_host_bw",
            "looks like GB/s",
            "450000000, if GB/s",
        ),
        (
            H100,
            {"intra_host_bw": "450e9"},
            None,
            "intra_host_bw",
            "bytes per second",
            "450000000, if",
        ),
        (H100, {"hbm_bw": "3597073715"}, None, "hbm_bw", "GB/s taken for GiB/s", "3350000000"),
        (H100, {"hbm_bw": "2000000000"}, None, "hbm_bw", "2,000 GB/s is below", "3350000000"),
        (H100, {"hbm_bw": "4800000000"}, None, "hbm_bw", "4,800 GB/s is above", "3350000000"),
        (H100, {"hbm_bw": "3.35"}, None, "hbm_bw", "not 3.35", "3350000000, if TB/s were meant"),
        (H100, {"hbm_bytes": "80"}, None, "hbm_bytes", "not 80", "85899345920, if GiB were meant"),
        (
            H100,
            {"hbm_bytes": "81559"},
            None,
            "hbm_bytes",
            "not 81559",
            "85520809984, if MiB were meant",
        ),
        (
            H100,
            {"hbm_bytes": "85899345920"},
            None,
            "hbm_bytes",
            "more than a program",
            "85020639232",
        ),
        (GB200, {"hbm_bytes": "180000000000"}, None, "hbm_bytes", "9% less than", "197283282944"),
        (H100, {"ddr_bytes": str(2**41)}, None, "ddr_bytes", "16.0 TiB in a host", str(2**38)),
        (
            H100,
            {"inter_host_bw": "400000000"},
            None,
            "inter_host_bw",
            "looks like Gbit/s",
            "50000000",
        ),
        (
            H100,
            {"inter_host_bw": "90000000", "intra_host_bw": "31500000"},
            None,
            "inter_host_bw",
            "90 GB/s between hosts is more than 31.5 inside",
            "a GPU's share",
        ),
        (H100, {"inter_host_bw": ""}, 16, "inter_host_bw", "12.5 GiB/s", "12500000 for 100 Gbit/s"),
        (H100, {"hbm_to_ddr_bw": "63000000"}, None, "hbm_to_ddr_bw", "the whole link", "31500000"),
        (H100, {"hbm_to_ddr_bw": "126000000"}, None, "hbm_to_ddr_bw", "both ways", "31500000"),
        (H100, {"gpus_per_host": "16"}, None, "gpus_per_host", "at most 8", "8"),
        (H100, {"gpus_per_host": "0"}, None, "gpus_per_host", "positive", "a whole number"),
        (H100, {"gpus_per_host": "many"}, None, "gpus_per_host", "must be a number", "a number"),
        (H100, {}, 20, "gpus_per_host", "no whole number of domains of 8", "16 or 24 GPUs"),
        (H100, {"hbm_bw": ""}, None, "hbm_bw", "hbm_bw is missing", "3350000000 (H100-SXM5-80GB)"),
        (H100, {"name": "a/b"}, None, "name", "must not hold '/'", ""),
        (
            GB200,
            {"hosts_per_nvlink_domain": "1"},
            None,
            "hosts_per_nvlink_domain",
            "a part of an NVL",
            "18, for a whole rack",
        ),
        (
            GB200,
            {"hosts_per_nvlink_domain": ""},
            None,
            "hosts_per_nvlink_domain",
            "a part of",
            "18",
        ),
        (
            GB200,
            {"gpus_per_host": "18", "hosts_per_nvlink_domain": "4"},
            None,
            "gpus_per_host",
            "a host has at most 4 GB200, not 18",
            "4, and hosts_per_nvlink_domain=18",
        ),
        (
            GB200,
            {"hosts_per_nvlink_domain": "36"},
            None,
            "hosts_per_nvlink_domain",
            "4 x 36 GPUs are more than the 72",
            "18",
        ),
        (GB200, {}, 64, "hosts_per_nvlink_domain", "larger than the world of 64", "16, the hosts"),
    ],
)
def test_each_trap_is_seen(row, change, gpus, column, wrong, write):
    findings = found(row | change, gpus)
    assert [finding.column for finding in findings] == [column], findings
    (finding,) = findings
    assert wrong in finding.wrong
    assert write in finding.write
    assert finding.where.startswith("mine.csv, row 1 (")


def test_all_traps_of_a_row_are_told_at_once():
    bad = H100 | {
        "hbm_bytes": "x",
        "intra_host_bw": "900000000",
        "hbm_bw": "3350",
        "ddr_bytes": str(2**41),
        "inter_host_bw": "400000000",
        "hbm_to_ddr_bw": "63000000",
    }
    columns = {finding.column for finding in found(bad, 20)}
    assert columns == set(bad) - {"name", "gpu", "hosts_per_nvlink_domain"}


def test_a_gpu_of_no_data_sheet_is_not_compared():
    assert found(H100 | {"gpu": "Z1000", "intra_host_bw": "900000000"}) == []
    assert found(H100 | {"gpu": "", "hbm_bw": "2000000000"}) == []


def test_a_part_of_an_mi300x_machine_has_a_part_of_its_links():
    row = H100 | {"gpu": "MI300X", "intra_host_bw": "448000000", "hbm_bw": "5300000000"}
    row |= {"hbm_bytes": "206141652992"}
    assert found(row, 8) == []
    (finding,) = found(row, 2)
    assert finding.write == "64000000"


cells = st.one_of(
    st.sampled_from(["", " ", "x", "nan", "-1", "0", "1e400", "8.5", "8", "1"]),
    st.floats(1e-3, 1e16).map(lambda value: f"{value:g}"),
    st.integers(1, 10**15).map(str),
)


@given(st.dictionaries(st.sampled_from(sorted(set(H100) - {"name", "gpu"})), cells, max_size=5))
def test_what_the_loader_refuses_is_found_and_nothing_fails(changes: dict[str, str]):
    row = H100 | changes
    findings = found(row, 64)
    try:
        read_topologies(as_csv(row), "mine.csv")
    except UsageError:
        assert (
            findings
            or float(row["gpus_per_host"]) > 4096
            or (float(row["gpus_per_host"]) * float(row["hosts_per_nvlink_domain"] or 1) > 4096)
        )
    for finding in findings:
        assert finding.wrong
        assert finding.where


@given(
    st.sampled_from(["intra_host_bw", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw"]),
    st.sampled_from([1e3, 1e-6]),
)
def test_in_another_unit_the_figure_is_told_in_the_right_one(column: str, factor: float):
    row = H100 | {column: f"{float(H100[column]) * factor:g}"}
    (finding,) = found(row)
    assert finding.write.startswith(H100[column])


class TestTorchrecArguments:
    NVL72 = '{"gpu": "GB200", "world_size": %d, "local_world_size": 4, "pod_size": 18, "hbm_cap": 197283282944, "hbm_mem_bw": 8e9, "hbm_to_ddr_mem_bw": 225e6, "intra_host_bw": 9e8, "inter_host_bw": 5e7}'  # noqa: E501

    def test_pod_size_is_the_trap_and_nothing_else(self):
        (finding,) = check(read_torchrec_arguments(self.NVL72 % 72, "nvl72.json"))
        assert (finding.column, finding.write) == (
            "pod_size",
            "local_world_size=72, without pod_size",
        )

    def test_a_group_larger_than_the_world_is_told_with_it(self):
        (finding,) = check(read_torchrec_arguments(self.NVL72 % 64, "nvl72.json"))
        assert "more than the world of 64" in finding.wrong
        assert finding.write == "local_world_size=64, without pod_size"

    def test_what_is_left_out_is_told_with_torchrecs_own_figure(self):
        findings = check(read_torchrec_arguments('{"world_size": 16}', "few.json"))
        assert {finding.column for finding in findings} == {
            *("local_world_size", "hbm_cap", "hbm_mem_bw", "hbm_to_ddr_mem_bw", "intra_host_bw")
        }

    def test_torchrec_itself_does_as_is_said_here(self):
        """The real Topology: `pod_size` moves no bandwidth, a larger `local_world_size` does."""
        from torchrec.distributed.planner.types import CollectiveType, Topology

        def all_to_all(**hosts: int) -> float:
            topology = Topology(
                world_size=72,
                compute_device="cuda",
                intra_host_bw=900e6,
                inter_host_bw=50e6,
                **hosts,
            )
            return topology.comms_bandwidths.get_bw(
                topology.local_world_size, topology.world_size, CollectiveType.ALL_TO_ALL
            )

        assert all_to_all(local_world_size=4) == all_to_all(local_world_size=4, pod_size=18) == 50e6
        assert all_to_all(local_world_size=72) == 900e6
        default = Topology(world_size=16, compute_device="cuda")
        assert default.local_world_size == 16
        assert default.devices[0].storage.hbm == 32 * 2**30
        assert default.comms_bandwidths.intra_host_bw == 600 * 2**30 / 1000
        assert default.comms_bandwidths.inter_host_bw == 12.5 * 2**30 / 1000

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "bad.json cannot be read: it is no JSON"),
            ("[1]", "must hold a JSON object"),
            ('{"world_size": "many"}', "world_size must be a whole number, not 'many'"),
            ('{"hbm_cap": [1]}', "hbm_cap must be a number"),
            ('{"hbm_cap": true}', "hbm_cap must be a number, not true"),
            ("[" * 10**5, "cannot be read"),
        ],
    )
    def test_what_is_no_object_of_arguments_is_refused(self, text: str, said: str):
        with pytest.raises(UsageError) as refused:
            check(read_torchrec_arguments(text, "bad.json"))
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "column 'name' is missing"),
        ("# nothing\n", "column 'name' is missing"),
        ("gpu,hbm_bw\nT4,1\n", "column 'name' is missing"),
        ("name,gpu\n", "no topology is listed"),
        ("x" * 2**18, "line 1: field larger than field limit"),
    ],
)
def test_what_is_no_table_of_topologies_is_refused(text: str, said: str):
    with pytest.raises(UsageError) as refused:
        read_rows(text, "mine.csv")
    assert said in str(refused.value)


def test_a_written_row_is_named_by_its_arguments_for_torchrec():
    assert Written("f", {}, is_torchrec=True).called("hbm_bw") == "hbm_mem_bw"
    assert Written("f", {}).called("hbm_bw") == "hbm_bw"
