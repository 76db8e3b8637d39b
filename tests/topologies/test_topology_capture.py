"""Devices of a machine become the row of a topology file, and GPUs are known by their names."""

from contextlib import suppress
from dataclasses import replace
from subprocess import CompletedProcess

import pytest
from hypothesis import given, strategies as st
from public_outputs import output

from harness.model.errors import UsageError
from harness.topologies import probe
from harness.topologies.capture import ASSUMED, QUERIED, SHEET, capture
from harness.topologies.links import LinkMatrix, parse_matrix
from harness.topologies.lookup import (
    find_gpu_kind,
    gpu_kinds,
    presets,
    read_rows,
    read_topologies,
    require_gpu_kind,
)
from harness.topologies.probe import GpuDevice, Host, NetworkDevice
from harness.topologies.traps import find_traps

# An H100 as `deviceQuery` of thamada/nvidia-smi nvsim/H100SXMx8_deviceQuery.py has it: 85045477376
# bytes, memory clock 2619 MHz, bus width 5120 bits.
H100 = GpuDevice(
    "NVIDIA H100 80GB HBM3",
    memory_bytes=85045477376,
    memory_clock=2619000,
    bus_width=5120,
    pcie_generation=5,
    pcie_width=16,
)
# A DGX H100 has a network device of 400 Gbit/s beside each GPU, and others for storage.
NICS = [
    *(NetworkDevice(f"mlx5_{n}", 400.0, True) for n in range(8)),
    NetworkDevice("mlx5_8", 200.0, True),
    NetworkDevice("eno1", 10.0, False),
]


def matrix_of(gpus: int, link: str = "NV18", nics: int = 9) -> LinkMatrix:
    devices = [f"GPU{n}" for n in range(gpus)] + [f"mlx5_{n}" for n in range(nics)]
    links = {}
    for a in devices:
        for b in devices:
            near = "PIX" if a[-1] == b[-1] else "SYS"
            links[a, b] = link if a[:3] == b[:3] == "GPU" else near
    return LinkMatrix(tuple(devices[:gpus]), tuple(devices[gpus:]), links)


def host(gpu: GpuDevice = H100, count: int = 8, nics=NICS, link: str = "NV18") -> Host:
    return Host((gpu,) * count, matrix_of(count, link), "a recorded machine", nics, 2**41)


def test_a_dgx_h100_gives_the_figures_of_its_preset_and_no_traps():
    """Each figure says where it comes from."""
    row, preset = capture(host(), "mine"), presets()["dgx_h100"]
    topology = read_topologies(row.as_csv(), "mine.csv")["mine"]
    assert (topology.gpus_per_host, topology.ddr_bytes) == (8, 2**38)
    assert topology.hbm_bytes == 85045477376
    for column in ("intra_host_bw", "inter_host_bw", "hbm_bw", "hbm_to_ddr_bw"):
        assert getattr(topology, column) == pytest.approx(getattr(preset, column), rel=0.001)
    bases = {column: figure.basis for column, figure in row.figures.items()}
    assert bases["hbm_bytes"] == bases["hbm_bw"] == bases["inter_host_bw"] == QUERIED
    assert bases["intra_host_bw"] == SHEET
    assert "mlx5_8" not in row.figures["inter_host_bw"].why
    assert find_traps(read_rows(row.as_csv(), "machine.csv")[0], 16) == []


@pytest.mark.parametrize(
    ("nics", "gbits"),
    [
        ([NetworkDevice("mlx5_0", 100, True), NetworkDevice("mlx5_1", None, True)], 100),
        ([NetworkDevice("ens5", 100, False), NetworkDevice("eno1", 10, False)], 100),
        ([NetworkDevice("rdmap0", 100, True), NetworkDevice("rdmap1", 100, True)], 200),
        ([], 0),
    ],
)
def test_the_network_is_shared_by_the_gpus(nics, gbits):
    """RDMA devices count together, and of plain ones the fastest."""
    value = capture(host(nics=nics), "mine").figures["inter_host_bw"].value
    assert (value or 0) == gbits / 8 * 1e6 / 8


@pytest.mark.parametrize(
    ("forgotten", "link", "column"),
    [
        ({"memory_bytes": None}, "PIX", "hbm_bytes"),
        ({"memory_clock": None}, "PIX", "hbm_bw"),
        ({"pcie_generation": None}, "PIX", "hbm_to_ddr_bw"),
        ({}, "NV18", "intra_host_bw"),
    ],
)
def test_what_neither_gpu_nor_data_sheet_tells_is_asked_for(forgotten, link, column):
    """GPUs of several kinds are refused."""
    strange = replace(H100, name="Z1000", **forgotten)
    with pytest.raises(UsageError, match=f"^{column} of the GPU 'Z1000' is not known"):
        capture(host(strange, link=link), "strange")
    mixed = replace(host(), gpus=(H100, strange))
    with pytest.raises(UsageError, match="GPUs of one kind, not NVIDIA H100 80GB HBM3 and Z1000"):
        capture(mixed, "mixed")


def test_the_size_of_a_rack_is_given():
    """A tray cannot see the other hosts of its rack."""
    tray = parse_matrix(output("gb200_4_tray"), "tray")
    gpus = (GpuDevice("NVIDIA GB200"),) * 4
    alone = capture(Host(gpus, tray, "a test"), "tray")
    hosts = alone.figures["hosts_per_nvlink_domain"]
    assert (alone.confidence, hosts.value, hosts.basis) == ("low", 1, ASSUMED)
    rack = capture(Host(gpus, tray, "a test"), "rack", hosts_per_domain=18)
    topology = read_topologies(rack.as_csv(), "rack.csv")["rack"]
    assert topology.domain_size == 72
    assert (topology.inter_host_bw, topology.ddr_bytes) == (None, None)


def test_a_mesh_names_both_of_its_figures():
    """The share of an all-to-all is less than all links carry."""
    mesh = parse_matrix(output("v100_8_hybrid_cube_mesh"), "mesh")
    row = capture(Host((GpuDevice("V100"),) * 8, mesh, "a test"), "mesh")
    assert row.figures["intra_host_bw"].value == 36.75e6
    assert "(its NVLinks together carry 150 GB/s)" in row.as_csv()


@given(
    st.integers(1, 8),
    st.sampled_from([1, 2, 3, 4, 5, 6]),
    st.sampled_from([4, 8, 16]),
    st.lists(st.floats(1, 800), max_size=4),
)
def test_any_machine_gives_a_row_that_is_read_or_refused(count, generation, width, speeds):
    """A captured row passes the same checks as a written one."""
    gpu = replace(H100, name="Z1000", pcie_generation=generation, pcie_width=width)
    nics = [NetworkDevice(f"mlx5_{n}", speed, True) for n, speed in enumerate(speeds)]
    row = capture(host(gpu, count, nics, "PIX"), "any")
    # A narrower link than any planner's is refused.
    with suppress(UsageError):
        assert read_topologies(row.as_csv(), "any.csv")["any"].gpus_per_host == count


def test_names_of_gpus_are_understood_as_drivers_and_files_write_them():
    """A name that fits several kinds is refused."""
    for written, kind in {
        "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
        "NVIDIA H100 PCIe": "H100-PCIE-80GB",
        "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
        "Tesla V100-SXM2-32GB": "V100-SXM2-32GB",
        "NVIDIA GeForce RTX 3090": "RTX-3090",
        "NVIDIA A10G": "A10G",
        "NVIDIA A10": "A10",
        "GB200 (186GB)": "GB200",
    }.items():
        assert require_gpu_kind(written).name == kind
    assert find_gpu_kind("H100") is find_gpu_kind("") is None
    for unclear, reason in (("h100", "be any of H100-SXM5-80GB, H100-PCIE"), ("Z1", "of P100")):
        with pytest.raises(UsageError, match=reason):
            require_gpu_kind(unclear)


def test_presets_agree_with_the_data_sheets():
    """Bandwidths of presets are those of their GPUs."""
    assert all(find_gpu_kind(kind.name) is kind and kind.source for kind in gpu_kinds())
    for preset in presets().values():
        kind = require_gpu_kind(preset.gpu)
        assert preset.hbm_bw == pytest.approx(kind.hbm_bw, rel=0.05), preset.name
        if kind.nvlinks:
            assert preset.intra_host_bw == pytest.approx(kind.all_links_bw), preset.name


def test_a_machine_is_read_from_its_driver_or_the_reason_is_noted(monkeypatch):
    """A saved matrix and made-up answers stand for those of `nvidia-smi`."""
    answers = {
        "topo": CompletedProcess([], 0, output("a100_pcie_2"), ""),
        "--query-gpu": CompletedProcess([], 0, "NVIDIA A100-PCIE-40GB, 40960, 4, [N/A]\n" * 2, ""),
    }
    answer = lambda command, **_: answers[command[1].partition("=")[0]]  # noqa: E731
    monkeypatch.setattr(probe.subprocess, "run", answer)
    machine = probe.read_host()
    assert machine.matrix == parse_matrix(output("a100_pcie_2"), "saved")
    assert machine.gpus[1].name == "NVIDIA A100-PCIE-40GB"
    assert (machine.gpus[1].pcie_generation, machine.gpus[1].pcie_width) == (4, None)
    assert machine.gpus[1].memory_bytes == 40 * 2**30
    assert machine.memory > 2**28

    answers["--query-gpu"] = CompletedProcess([], 9, "NVIDIA-SMI has failed.\n", "")
    machine = probe.read_host()
    assert (machine.gpus, machine.matrix) == ([], None)
    assert machine.failures["nvidia-smi"] == "NVIDIA-SMI has failed."


def test_network_cards_are_read_once_with_their_speeds(tmp_path):
    """A tree in the form of `/sys`: a card of two kinds, two plain cards, and `lo`."""

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def link(name: str, target: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / target)

    card = "devices/pci0000:40/0000:41:00.0"
    ports = (("4: ACTIVE", "200 Gb/sec (4X HDR)"), ("1: DOWN", "10 Gb/sec (4X SDR)"))
    for port, (state, rate) in enumerate(ports):
        write(f"{card}/infiniband/mlx5_0/ports/{port}/state", state)
        write(f"{card}/infiniband/mlx5_0/ports/{port}/rate", rate)
    write(f"{card}/net/ib0/speed", "200000\n")
    for kind, name in (("infiniband", "mlx5_0"), ("net", "ib0")):
        link(f"{card}/{kind}/{name}/device", card)
        link(f"class/{kind}/{name}", f"{card}/{kind}/{name}")
    for name, speed in (("eno1", "25000\n"), ("eno2", "-1\n")):
        write(f"devices/{name}/net/{name}/speed", speed)
        link(f"devices/{name}/net/{name}/device", f"devices/{name}")
        link(f"class/net/{name}", f"devices/{name}/net/{name}")
    write("devices/virtual/net/lo/speed", "")
    link("class/net/lo", "devices/virtual/net/lo")
    assert probe.read_nics(tmp_path) == [
        NetworkDevice("mlx5_0", 200, True),
        NetworkDevice("eno1", 25, False),
        NetworkDevice("eno2", None, False),
    ]
