"""Answers of NVML, torch and `/sys` become a link matrix and the row of a topology file."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from public_outputs import output

from harness.model.errors import UsageError
from harness.topologies import probe
from harness.topologies.capture import ASSUMED, QUERIED, SHEET, Host, capture, usable_gbits
from harness.topologies.csv_files import read_rows, read_topologies
from harness.topologies.devices import GpuDevice, NetworkDevice, PciPlace, matrix_of, path_kind
from harness.topologies.gpu_kinds import find_gpu_kind, gpu_kinds, pcie_bw, require_gpu_kind
from harness.topologies.link_matrix import parse_matrix
from harness.topologies.lookup import find_topology, presets
from harness.topologies.traps import find_traps

# An H100 as `deviceQuery` of thamada/nvidia-smi nvsim/H100SXMx8_deviceQuery.py has it: 85045477376
# bytes, memory clock 2619 MHz, bus width 5120 bits.
H100 = GpuDevice(
    "NVIDIA H100 80GB HBM3",
    memory_bytes=85045477376,
    memory_from="torch",
    memory_clock=2619000,
    bus_width=5120,
    pcie_generation=5,
    pcie_width=16,
    links=("switch",) * 18,
    link_raw_bw=26.5625e6,
)


def at(switch: int, slot: int, numa: int = 0) -> PciPlace:
    """Return the place of a device behind a PCIe switch of its own socket, as on most servers."""
    root = f"pci0000:{10 * numa + switch:02d}"
    bus = f"0000:{10 * numa + switch:02d}"
    return PciPlace(
        (root, f"{bus}:01.0", f"{bus}:02.0", f"{bus}:{3 + slot:02d}.0", f"{bus}:{slot}f.0"), numa
    )


def eight_h100() -> tuple[list[GpuDevice], list[NetworkDevice]]:
    gpus = [
        replace(H100, address=f"0000:{n:02x}:00.0", place=at(n % 4, 0, n // 4)) for n in range(8)
    ]
    nics = [NetworkDevice(f"mlx5_{n}", 400.0, True, at(n % 4, 1, n // 4)) for n in range(8)]
    storage = [
        NetworkDevice("mlx5_8", 200.0, True, at(9, 1, 0)),
        NetworkDevice("eno1", 10.0, False, at(8, 1, 1)),
    ]
    return gpus, [*nics, *storage]


def machine(gpus: list[GpuDevice], nics: list[NetworkDevice], memory: int | None = 2**41) -> Host:
    return Host(
        tuple(gpus), matrix_of(gpus, nics, {}), "a recorded machine", usable_gbits(nics), memory
    )


class TestMatrixOfAMachine:
    def test_gpus_on_a_switch_are_joined_by_all_their_links(self):
        gpus, nics = eight_h100()
        matrix = matrix_of(gpus, nics, {})
        assert {matrix.link(a, b) for a in matrix.gpus for b in matrix.gpus if a != b} == {"NV18"}
        assert matrix.link("GPU3", "NIC3") == "PIX"
        assert matrix.link("GPU3", "NIC2") == "NODE"
        assert matrix.link("GPU3", "NIC4") == "SYS"
        assert matrix.name_of("NIC3") == "mlx5_3"

    def test_direct_links_count_for_their_pair_alone(self):
        ends = {0: (1, 1, 2), 1: (0, 0), 2: (0,)}
        addresses = [f"0000:0{n}:00.0" for n in range(3)]
        gpus = [
            GpuDevice("V100", addresses[n], links=tuple(addresses[end] for end in ends[n]))
            for n in range(3)
        ]
        matrix = matrix_of(gpus, [], {(1, 2): 30})
        assert [matrix.link("GPU0", "GPU1"), matrix.link("GPU0", "GPU2")] == ["NV2", "NV1"]
        assert matrix.link("GPU1", "GPU2") == "PHB"

    def test_where_a_link_leads_may_be_hidden(self):
        gpus = [replace(H100, links=("",) * 18, address=f"a{n}") for n in range(4)]
        assert matrix_of(gpus, [], {}).link("GPU0", "GPU3") == "NV18"

    @pytest.mark.parametrize(
        ("level", "kind"),
        [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")],
    )
    def test_without_nvlink_the_common_ancestor_tells(self, level: int, kind: str):
        gpus = [GpuDevice("T4", f"a{n}") for n in range(2)]
        assert matrix_of(gpus, [], {(1, 0): level}).link("GPU0", "GPU1") == kind

    def test_paths_are_told_apart_as_nvidia_smi_does(self):
        port = ("pci0000:00", "0000:00:01.0", "0000:01:00.0")
        one = PciPlace((*port, "0000:02:00.0", "0000:03:00.0"), 0)
        assert path_kind(one, PciPlace((*port, "0000:02:01.0", "0000:04:00.0"), 0)) == "PIX"
        deep = ("0000:02:02.0", "0000:05:00.0", "0000:06:00.0", "0000:07:00.0")
        assert path_kind(one, PciPlace((*port, *deep), 0)) == "PXB"
        assert path_kind(one, PciPlace(("pci0000:00", "0000:00:02.0", "0000:08:00.0"), 0)) == "PHB"
        assert path_kind(one, PciPlace(("pci0000:40", "0000:40:01.0"), 0)) == "NODE"
        assert path_kind(one, PciPlace(("pci0000:80", "0000:80:01.0"), 1)) == "SYS"
        assert path_kind(PciPlace(()), PciPlace(())) == "SYS"

    def test_paths_end_at_the_pci_device(self):
        below = "/sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0"
        assert probe.path_below_devices(below) == ("pci0000:00", "0000:00:03.0")
        assert probe.path_below_devices("/sys/devices/virtual/net/lo") == ()

    @pytest.mark.parametrize(
        ("text", "gbits"),
        [
            ("400 Gb/sec (4X NDR)\n", 400),
            ("2.5 Gb/sec (1X SDR)", 2.5),
            ("", 0),
            ("0 Gb/sec", 0),
        ],
    )
    def test_rates_of_ports(self, text: str, gbits: float):
        assert probe.rate_gbits(text) == gbits


class TestCapture:
    def test_a_dgx_h100_gives_the_figures_of_its_preset(self):
        row = capture(machine(*eight_h100()), "mine")
        preset = presets()["dgx_h100"]
        assert row.figures["gpus_per_host"].value == 8
        for column in ("intra_host_bw", "intra_host_bw_nccl", "inter_host_bw", "hbm_to_ddr_bw"):
            assert row.figures[column].value == pytest.approx(getattr(preset, column), rel=0.001), (
                column
            )
        assert row.figures["hbm_bytes"].value == 85045477376
        assert row.figures["hbm_bw"].value == pytest.approx(3352.32e6)
        assert row.figures["ddr_bytes"].value == 2**41 // 8
        bases = {column: figure.basis for column, figure in row.figures.items()}
        assert bases["hbm_bytes"] == bases["hbm_bw"] == bases["inter_host_bw"] == QUERIED
        assert bases["intra_host_bw"] == SHEET
        inter = row.figures["inter_host_bw"].why
        assert "mlx5_7" in inter
        assert "mlx5_8" not in inter

    def test_the_file_is_read_back_and_is_clean(self, tmp_path: Path):
        row = capture(machine(*eight_h100()), "mine")
        file = tmp_path / "machine.csv"
        file.write_text(row.as_csv(), encoding="utf-8")
        found = find_topology(str(file), 16)
        assert (found.name, found.domains, found.gpu) == ("mine", 2, H100.name)
        assert found.intra_host_bw == 450e6
        text = row.as_csv()
        for column, figure in row.figures.items():
            assert f"# {column}: {figure.basis}: " in text
        assert find_traps(read_rows(text, "machine.csv")[0], 16) == []

    def test_a_gpu_of_no_data_sheet_is_captured_from_what_nvml_tells(self):
        gpus, nics = eight_h100()
        strange = [replace(gpu, name="NVIDIA Z1000") for gpu in gpus]
        row = capture(machine(strange, nics), "strange")
        assert row.figures["intra_host_bw"].value == 18 * 26.5625e6
        assert row.figures["hbm_to_ddr_bw"].value == pytest.approx(pcie_bw(5, 16) / 2)
        assert row.confidence == "high"

    @pytest.mark.parametrize(
        ("forgotten", "column"),
        [
            ({"memory_bytes": None}, "hbm_bytes"),
            ({"memory_clock": None}, "hbm_bw"),
            ({"pcie_generation": None}, "hbm_to_ddr_bw"),
            ({"link_raw_bw": None}, "intra_host_bw"),
        ],
    )
    def test_what_nothing_tells_is_asked_for(self, forgotten: dict[str, None], column: str):
        gpus, nics = eight_h100()
        strange = [replace(gpu, name="Z1000", **forgotten) for gpu in gpus]
        with pytest.raises(UsageError, match=f"^{column} of the GPU 'Z1000' cannot be found: "):
            capture(machine(strange, nics), "strange")

    def test_gpus_of_two_kinds_are_refused(self):
        gpus, nics = eight_h100()
        with pytest.raises(
            UsageError, match="GPUs of one kind, and this machine has NVIDIA H100 80"
        ):
            capture(machine([*gpus[:7], replace(H100, name="T4")], nics), "mixed")
        with pytest.raises(UsageError, match="There is no GPU"):
            capture(machine([], []), "none")

    def test_a_rack_needs_to_be_told(self):
        tray = parse_matrix(output("gb200_4_tray"), "tray")
        gpus = tuple(GpuDevice("NVIDIA GB200") for _ in tray.gpus)
        alone = capture(Host(gpus, tray, "a test"), "tray")
        assert alone.confidence == "low"
        hosts = alone.figures["hosts_per_nvlink_domain"]
        assert (hosts.value, hosts.basis) == (1, ASSUMED)
        assert "18 for a whole rack" in hosts.why
        rack = capture(Host(gpus, tray, "a test"), "rack", hosts_per_domain=18)
        topology = read_topologies(rack.as_csv(), "rack.csv")["rack"]
        assert topology.domain_size == 72
        assert (topology.inter_host_bw, topology.ddr_bytes) == (None, None)

    def test_a_mesh_names_both_of_its_figures(self):
        mesh = parse_matrix(output("v100_8_hybrid_cube_mesh"), "mesh")
        row = capture(Host(tuple(GpuDevice("V100") for _ in mesh.gpus), mesh, "a test"), "mesh")
        assert row.figures["intra_host_bw"].value == 36.75e6
        assert "(its NVLinks together carry 150 GB/s)" in row.as_csv()
        assert row.figures["intra_host_bw_nccl"].value is None

    def test_ports_without_a_link_do_not_count(self):
        nics = [
            NetworkDevice("mlx5_0", 100, True),
            NetworkDevice("mlx5_1", None, True),
            NetworkDevice("eth0", 25, False),
        ]
        assert usable_gbits(nics) == {"NIC0": 100}
        assert usable_gbits(nics[1:]) == {"NIC1": 25}
        assert usable_gbits([]) == {}


@given(
    st.integers(1, 8),
    st.integers(0, 18),
    st.sampled_from([1, 2, 3, 4, 5, 6]),
    st.sampled_from([4, 8, 16]),
    st.lists(st.floats(1, 800), max_size=4),
)
def test_any_recorded_machine_gives_a_row_that_is_read_or_a_sentence(
    count: int, links: int, generation: int, width: int, speeds: list[float]
):
    gpu = replace(
        H100, name="Z1000", links=("switch",) * links, pcie_generation=generation, pcie_width=width
    )
    nics = [NetworkDevice(f"mlx5_{n}", speed, True) for n, speed in enumerate(speeds)]
    row = capture(machine([replace(gpu, address=f"a{n}") for n in range(count)], nics), "any")
    refused = ""
    try:
        found = read_topologies(row.as_csv(), "any.csv")["any"]
    except UsageError as error:
        refused = str(error)
    else:
        assert found.gpus_per_host == count
        assert found.intra_host_bw == round(row.figures["intra_host_bw"].value or 0)
    # Only a narrower link than any planner's is refused.
    assert not refused or "must be bytes per millisecond" in refused


class TestDataSheets:
    def test_names_are_understood_as_drivers_and_files_write_them(self):
        for written, kind in {
            "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
            "NVIDIA H100 PCIe": "H100-PCIE-80GB",
            "NVIDIA H100 NVL": "H100-NVL",
            "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
            "NVIDIA A100 80GB PCIe": "A100-PCIE-80GB",
            "Tesla V100-SXM2-32GB": "V100-SXM2-32GB",
            "NVIDIA GeForce RTX 3090": "RTX-3090",
            "NVIDIA A10G": "A10G",
            "NVIDIA A10": "A10",
            "GB200 (186GB)": "GB200",
        }.items():
            assert require_gpu_kind(written).name == kind
        assert find_gpu_kind("H100") is find_gpu_kind("") is find_gpu_kind("Radeon VII") is None
        with pytest.raises(
            UsageError, match=r"'h100' may be any of H100-SXM5-80GB, H100-PCIE-80GB"
        ):
            require_gpu_kind("h100")
        with pytest.raises(UsageError, match="No data sheet is known for a GPU 'Radeon VII'"):
            require_gpu_kind("Radeon VII")

    def test_each_kind_is_found_by_its_own_name_and_has_a_source(self):
        for kind in gpu_kinds():
            assert find_gpu_kind(kind.name) is kind
            assert kind.source
            assert (kind.memory_bytes is None) == (not kind.memory_basis)

    def test_presets_agree_with_the_data_sheets(self):
        for preset in presets().values():
            kind = find_gpu_kind(preset.gpu)
            assert kind, preset.name
            assert preset.hbm_bw == pytest.approx(kind.hbm_bw, rel=0.05), preset.name
            if kind.nvlinks:
                assert preset.intra_host_bw == pytest.approx(kind.all_links_bw), preset.name
                assert preset.intra_host_bw_nccl == kind.nvlinks * (kind.nccl_link_bw or 0)

    def test_pcie_by_generation_and_width(self):
        assert pcie_bw(4, 16) == pytest.approx(31.508e6, rel=1e-4)
        assert pcie_bw(3, 8) == pytest.approx(7.877e6, rel=1e-4)
        with pytest.raises(UsageError, match="generation 9 x16 is not known"):
            pcie_bw(9, 16)


class TestReading:
    """Reading `/sys`, on a made-up tree in the kernel's form."""

    @pytest.fixture
    def system(self, tmp_path: Path) -> Path:
        def write(path: str, text: str) -> None:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

        card = "devices/pci0000:40/0000:40:01.0/0000:41:00.0"
        write(f"{card}/numa_node", "1\n")
        for kind, name in (("infiniband", "mlx5_0"), ("net", "ib0")):
            (tmp_path / f"{card}/{kind}/{name}").mkdir(parents=True)
            (tmp_path / f"{card}/{kind}/{name}/device").symlink_to(tmp_path / card)
            (tmp_path / f"class/{kind}").mkdir(parents=True)
            (tmp_path / f"class/{kind}/{name}").symlink_to(tmp_path / f"{card}/{kind}/{name}")
        write(f"{card}/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
        write(f"{card}/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n")
        write(f"{card}/infiniband/mlx5_0/ports/2/state", "1: DOWN\n")
        write(f"{card}/infiniband/mlx5_0/ports/2/rate", "10 Gb/sec (4X SDR)\n")
        for name, speed in (("eno1", "25000\n"), ("eno2", "-1\n")):
            plain = f"devices/pci0000:00/0000:00:0{name[-1]}.0"
            write(f"{plain}/net/{name}/speed", speed)
            (tmp_path / f"{plain}/net/{name}/device").symlink_to(tmp_path / plain)
            (tmp_path / f"class/net/{name}").symlink_to(tmp_path / f"{plain}/net/{name}")
        write("devices/virtual/net/lo/speed", "")
        (tmp_path / "class/net/lo").symlink_to(tmp_path / "devices/virtual/net/lo")
        return tmp_path

    def test_cards_are_read_once_with_their_places(self, system: Path):
        found = {nic.name: nic for nic in probe.read_nics(system)}
        assert set(found) == {"mlx5_0", "eno1", "eno2"}
        assert (found["mlx5_0"].gbits, found["mlx5_0"].is_rdma) == (200, True)
        assert found["mlx5_0"].place == PciPlace(("pci0000:40", "0000:40:01.0", "0000:41:00.0"), 1)
        assert (found["eno1"].gbits, found["eno2"].gbits) == (25, None)

    def test_a_system_without_any_is_empty(self, tmp_path: Path):
        assert probe.read_nics(tmp_path) == []

    def test_this_machine_is_read_without_failing(self):
        assert probe.host_memory_bytes() > 2**28
        nvml = probe.read_gpus()
        assert bool(nvml.gpus) != bool(nvml.failure)
        gpus, unseen = probe.with_torch(nvml.gpus)
        assert len(gpus) == len(nvml.gpus)
        assert unseen or gpus
