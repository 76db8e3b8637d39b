"""The parser of `nvidia-smi topo -m` and what follows from it, on public and on made-up outputs."""

import re
from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, strategies as st
from public_outputs import KNOWN, output

from harness.model.errors import UsageError
from harness.topologies.gpu_kinds import require_gpu_kind
from harness.topologies.links import (
    LinkMatrix,
    all_to_all_bw,
    near_nics,
    parse_matrix,
    shape_of,
    usual_links,
)
from harness.topologies.lookup import presets


def body(name: str) -> list[str]:
    return [line for line in output(name).splitlines() if not line.startswith("#")]


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse_matrix(text, "topo.txt")
    return str(refused.value)


@pytest.mark.parametrize("name", sorted(KNOWN))
class TestPublicOutputs:
    def test_devices_and_links_are_as_printed(self, name: str):
        matrix, known = parse_matrix(output(name), name), KNOWN[name]
        devices = (*matrix.gpus, *matrix.nics)
        assert (len(matrix.gpus), len(matrix.nics)) == (known.gpus, known.nics)
        rows = {line.split()[0]: line.split() for line in body(name) if len(line.split()) > 1}
        for device in devices:
            printed = rows[device][1 : 1 + len(devices)]
            assert [matrix.link(device, other) for other in devices] == printed

    def test_groups_bandwidth_and_near_devices_are_as_worked_out_by_hand(self, name: str):
        matrix = parse_matrix(output(name), name)
        known, kind = KNOWN[name], require_gpu_kind(KNOWN[name].gpu)
        shape = shape_of(matrix, kind.nvlinks)
        assert tuple(map(len, shape.islands)) == known.islands
        assert shape.links_per_gpu == known.links_per_gpu
        found = all_to_all_bw(matrix, kind.nvlink_bw, kind.nvlinks, kind.host_link_bw)
        assert found == pytest.approx(known.all_to_all * 1e6)
        near = near_nics(matrix)
        nearest = near[matrix.gpus[0]][0] if near else ()
        assert tuple(map(matrix.name_of, nearest)) == known.near

    def test_the_data_sheet_tells_what_joins_the_gpus(self, name: str):
        matrix, known = parse_matrix(output(name), name), KNOWN[name]
        topology = replace(
            presets()["dgx_h100"],
            gpu=require_gpu_kind(known.gpu).name,
            gpus_per_host=known.gpus,
            hosts_per_nvlink_domain=18 if known.gpu == "GB200" else 1,
            intra_host_bw=known.all_to_all * 1e6,
        )
        assert usual_links(topology) == shape_of(matrix, require_gpu_kind(known.gpu).nvlinks).by

    def test_tabs_spaces_and_escapes_mean_the_same(self, name: str):
        lines = body(name)
        matrix = parse_matrix("\n".join(lines), name)
        header = next(at for at, line in enumerate(lines) if "GPU0" in line)
        underlined = [*lines]
        underlined[header] = f"\t\x1b[4m{lines[header].strip()}\x1b[0m"
        spaced = [re.sub(r"[\t ]+", "        ", line) for line in lines]
        around = ["user@host:~$ nvidia-smi topo -m", *lines, "user@host:~$ exit"]
        for changed in (underlined, spaced, around, [f"{line}\r" for line in lines]):
            assert parse_matrix("\n".join(changed), name) == matrix

    def test_a_copy_that_was_cut_or_wrapped_is_refused(self, name: str):
        lines, known = body(name), KNOWN[name]
        header = next(at for at, line in enumerate(lines) if "GPU0" in line)
        devices = known.gpus + known.nics
        for row in range(devices):
            assert "topo.txt, line " in refusal("\n".join(lines[: header + 1 + row]))
            short = [*lines]
            short[header + 1 + row] = " ".join(lines[header + 1 + row].split()[:devices])
            assert f"line {header + 2 + row}: the row of " in refusal("\n".join(short))
        width = min(len(line) for line in lines[:2]) - 6
        wrapped = [
            line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)
        ]
        assert "topo.txt" in refusal("\n".join(wrapped))


def test_the_old_word_for_the_sockets_link_is_understood():
    # As in https://gist.github.com/ashwin/e139748bdba15f5af63f0146d01ee4c3, of 2017.
    matrix = parse_matrix("GPU0 GPU1 CPU Affinity\nGPU0 X SOC 0-9\nGPU1 SOC X 10-19\n", "old")
    assert matrix.link("GPU0", "GPU1") == "SYS"


def test_a_single_gpu_is_a_matrix():
    matrix = parse_matrix("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "one.txt")
    assert shape_of(matrix, 18).how == "a single GPU"
    assert all_to_all_bw(matrix, 25e6, 18, 63e6) == 63e6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NVIDIA-SMI has failed", "topo.txt: no matrix of `nvidia-smi topo -m` is in it"),
        ("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X\n", "line 3: GPU1 cannot be joined with GPU0 by NV2"),
        ("GPU0 GPU1\nGPU0 X X\nGPU1 X X\n", "line 2: GPU0 cannot be joined with GPU1 by X"),
        ("GPU0 GPU0\nGPU0 X X\n", "line 1: a device is named twice"),
        ("GPU0 GPU1\nGPU0 X FAR\nGPU1 FAR X\n", "line 2: the row of GPU0 must have 2 links"),
        ("GPU0 GPU1\nGPU1 X NV4\nGPU0 NV4 X\n", "line 2: the row of GPU0 must be here"),
        ("GPU0 \x00\n", "'\\x00' is no name of a device"),
    ],
)
def test_what_is_no_matrix_is_refused_with_its_line(text: str, said: str):
    assert said in refusal(text)


@given(st.text(alphabet="GPU01 XNV4SYPI\t\n#", max_size=200))
def test_any_text_is_read_or_refused_with_a_sentence(text: str):
    with suppress(UsageError):
        matrix = parse_matrix(text, "topo.txt")
        assert all(matrix.link(a, b) == matrix.link(b, a) for a in matrix.gpus for b in matrix.gpus)


@pytest.mark.parametrize(
    ("gpu", "gpus", "by"),
    [
        ("A100 SXM4 40GB", 16, "switch"),
        ("P100-SXM2", 8, "mesh"),
        ("P100-SXM2", 6, None),
        ("MI300X", 8, "pairs"),
        ("T4", 4, "PCIe"),
        ("an accelerator", 8, None),
    ],
)
def test_what_joins_gpus_is_inferred_from_their_number_or_not_known(gpu, gpus, by):
    assert usual_links(replace(presets()["dgx_h100"], gpu=gpu, gpus_per_host=gpus)) == by


KINDS = ("NV1", "NV2", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS")


@st.composite
def matrices(draw: st.DrawFn) -> LinkMatrix:
    gpus = tuple(f"GPU{n}" for n in range(draw(st.integers(1, 9))))
    nics = tuple(f"NIC{n}" for n in range(draw(st.integers(0, 4))))
    links = {}
    for a, b in combinations((*gpus, *nics), 2):
        kind = draw(st.sampled_from(KINDS if b in gpus else KINDS[4:]))
        links[a, b] = links[b, a] = kind
    return LinkMatrix(gpus, nics, links, {nic: f"mlx5_{nic[3:]}" for nic in nics})


@given(matrices())
def test_what_is_printed_is_read_back(matrix: LinkMatrix):
    devices = (*matrix.gpus, *matrix.nics)
    rows = ["\t".join((one, *(matrix.link(one, other) for other in devices))) for one in devices]
    legend = [f"  {nic}: {name}" for nic, name in matrix.nic_names.items()]
    header = "\t" + "\t".join((*devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))
    text = "\n".join((header, *rows, "", "NIC Legend:", "", *legend))
    assert parse_matrix(text, "made.txt") == matrix


@given(matrices(), st.floats(1e6, 1e8), st.floats(1e6, 1e8), st.integers(1, 18))
def test_no_all_to_all_is_faster_than_all_links_together(matrix, nvlink_bw, pcie_bw, gpu_links):
    found = all_to_all_bw(matrix, nvlink_bw, gpu_links, pcie_bw)
    for gpu in matrix.gpus:
        peers = [other for other in matrix.gpus if other != gpu]
        links = sum(matrix.nvlinks(gpu, other) for other in peers)
        over_pcie = any(not matrix.nvlinks(gpu, other) for other in peers) or not peers
        assert 0 < found <= (links * nvlink_bw + over_pcie * pcie_bw) * (1 + 1e-9)
    islands = shape_of(matrix, gpu_links).islands
    assert sorted(gpu for island in islands for gpu in island) == sorted(matrix.gpus)
