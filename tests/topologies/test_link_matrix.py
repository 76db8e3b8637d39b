"""The parser of `nvidia-smi topo -m`, on public outputs and on outputs changed by copying."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, strategies as st
from public_outputs import DATA, KNOWN, output

from harness.model.errors import UsageError
from harness.topologies.gpu_kinds import require_gpu_kind
from harness.topologies.link_matrix import LinkMatrix, distance, nvlinks_of, parse_matrix
from harness.topologies.link_shape import (
    all_to_all_bw,
    linked_pairs,
    near_nics,
    shape_of,
    usual_links,
)
from harness.topologies.lookup import presets

NAMES = sorted(KNOWN)


def body(name: str) -> list[str]:
    return [line for line in output(name).splitlines() if not line.startswith("#")]


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse_matrix(text, "topo.txt")
    return str(refused.value)


def test_each_output_says_where_it_is_from_and_is_known():
    assert {path.stem for path in DATA.iterdir()} == set(KNOWN)
    for name in NAMES:
        first, second, *_ = output(name).splitlines()
        assert first.startswith("# source: ")
        assert second.startswith("# machine: ")


def links(matrix: LinkMatrix, pair: tuple[int, int]) -> int:
    return matrix.nvlinks(*(matrix.gpus[place] for place in pair))


@pytest.mark.parametrize("name", NAMES)
class TestPublicOutputs:
    def test_devices_and_links_are_as_printed(self, name: str):
        matrix = parse_matrix(output(name), name)
        known = KNOWN[name]
        assert matrix.gpus == tuple(f"GPU{position}" for position in range(known.gpus))
        assert len(matrix.nics) == known.nics
        devices = (*matrix.gpus, *matrix.nics)
        rows = {line.split()[0]: line.split() for line in body(name) if len(line.split()) > 1}
        for device in devices:
            printed = rows[device][1 : 1 + len(devices)]
            assert [matrix.link(device, other) for other in devices] == printed

    def test_what_follows_is_what_a_person_works_out(self, name: str):
        matrix = parse_matrix(output(name), name)
        known, kind = KNOWN[name], require_gpu_kind(KNOWN[name].gpu)
        shape = shape_of(matrix, kind.nvlinks)
        assert tuple(map(len, shape.islands)) == known.islands
        assert shape.links_per_gpu == known.links_per_gpu
        pcie = 31.5e6 if kind.name == "RTX-4090" else kind.host_link_bw
        found = all_to_all_bw(matrix, kind.nvlink_bw, kind.nvlinks, pcie)
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
        by = usual_links(topology)
        assert by == shape_of(matrix, require_gpu_kind(known.gpu).nvlinks).by
        if by == "mesh":
            joined = {pair for pair in combinations(range(known.gpus), 2) if links(matrix, pair)}
            assert set(linked_pairs(by, known.gpus)) == joined

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

    def test_a_copy_that_was_cut_is_refused_with_its_line(self, name: str):
        lines = body(name)
        header = next(at for at, line in enumerate(lines) if "GPU0" in line)
        known = KNOWN[name]
        devices = known.gpus + known.nics
        for kept in range(devices):
            said = refusal("\n".join(lines[: header + 1 + kept]))
            assert re.search(r"topo.txt, line \d+: ", said), said
        for row in range(devices):
            cells = lines[header + 1 + row].split()
            short = [*lines]
            short[header + 1 + row] = " ".join(cells[:devices])
            assert f"line {header + 2 + row}: the row of {cells[0]}" in refusal("\n".join(short))

    def test_a_copy_whose_lines_were_wrapped_is_refused(self, name: str):
        width = min(len(line) for line in body(name)[:2]) - 6
        wrapped = [
            line[at : at + width]
            for line in body(name)
            for at in range(0, max(len(line), 1), width)
        ]
        assert "topo.txt" in refusal("\n".join(wrapped))


def test_the_old_word_for_the_sockets_link_is_understood():
    # As in https://gist.github.com/ashwin/e139748bdba15f5af63f0146d01ee4c3, of 2017.
    text = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\tX\tPHB\tSOC\tSOC\t0-9,20-29
GPU1\tPHB\tX\tSOC\tSOC\t0-9,20-29
GPU2\tSOC\tSOC\tX\tPHB\t10-19,30-39
GPU3\tSOC\tSOC\tPHB\tX\t10-19,30-39
"""
    matrix = parse_matrix(text, "old.txt")
    assert matrix.link("GPU0", "GPU3") == "SYS"
    assert matrix.link("GPU2", "GPU3") == "PHB"


def test_a_single_gpu_is_a_matrix():
    matrix = parse_matrix("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "one.txt")
    assert matrix.gpus == ("GPU0",)
    assert shape_of(matrix, 18).how == "a single GPU"
    assert all_to_all_bw(matrix, 25e6, 18, 63e6) == 63e6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "topo.txt: no matrix of `nvidia-smi topo -m` is in it"),
        ("NVIDIA-SMI has failed", "no matrix"),
        (
            "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X\n",
            "line 3: GPU1 is joined with GPU0 by NV2, but GPU0",
        ),
        ("GPU0 GPU1\nGPU0 X X\nGPU1 X X\n", "line 2: GPU0 is joined with GPU1 by 'X'"),
        ("GPU0 GPU1\nGPU0 NV4 X\nGPU1 X NV4\n", "line 2: GPU0 is joined with GPU0 by 'NV4'"),
        ("GPU0 GPU0\nGPU0 X X\n", "line 1: a device is named twice"),
        (
            "GPU0 GPU1\nGPU0 X FAR\nGPU1 FAR X\n",
            "line 2: the row of GPU0 has 'FAR' in it after 1 of 2",
        ),
        ("GPU0 GPU1\nGPU1 X NV4\nGPU0 NV4 X\n", "line 2: the row of GPU0 must be here, not 'GPU1'"),
        ("GPU0 GPU1\nGPU0 X NV4\n", "line 2: the matrix ends before its row of GPU1."),
        ("GPU0 " + " ".join(f"n{n}" for n in range(600)), "at most 512 devices"),
        ("GPU0 \x00\n", "'\\x00' is no name of a device"),
    ],
)
def test_what_is_no_matrix_is_refused_with_its_line(text: str, said: str):
    assert said in refusal(text)


@given(st.text(alphabet="GPU01 XNV4SYPI\t\n#", max_size=200))
def test_any_text_is_read_or_refused_with_a_sentence(text: str):
    try:
        matrix = parse_matrix(text, "topo.txt")
    except UsageError as error:
        said = str(error)
    else:
        said = "topo.txt"
        assert all(matrix.link(a, b) == matrix.link(b, a) for a in matrix.gpus for b in matrix.gpus)
    assert said.startswith("topo.txt")


@pytest.mark.parametrize(
    ("gpu", "gpus", "by"),
    [
        ("A100 SXM4 40GB", 16, "switch"),
        ("V100", 16, "switch"),
        ("P100-SXM2", 8, "mesh"),
        ("P100-SXM2", 6, None),
        ("MI300X", 8, "pairs"),
        ("T4", 4, "PCIe"),
        ("an accelerator", 8, None),
        ("", 8, None),
    ],
)
def test_what_joins_gpus_is_inferred_from_their_number_or_not_known(gpu, gpus, by):
    assert usual_links(replace(presets()["dgx_h100"], gpu=gpu, gpus_per_host=gpus)) == by


def test_all_pairs_have_links_where_each_pair_has_its_own():
    assert linked_pairs("pairs", 4) == list(combinations(range(4), 2))
    assert linked_pairs("switch", 4) == []


KINDS = ("NV1", "NV2", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS")


@st.composite
def matrices(draw: st.DrawFn) -> LinkMatrix:
    gpus = tuple(f"GPU{n}" for n in range(draw(st.integers(1, 9))))
    nics = tuple(f"NIC{n}" for n in range(draw(st.integers(0, 4))))
    links = {}
    for a in (*gpus, *nics):
        for b in (*gpus, *nics):
            if a < b:
                over_nvlink = a in gpus and b in gpus
                kind = draw(st.sampled_from(KINDS if over_nvlink else KINDS[4:]))
                links[a, b] = links[b, a] = kind
    return LinkMatrix(gpus, nics, links, {nic: f"mlx5_{nic[3:]}" for nic in nics})


def printed(matrix: LinkMatrix) -> str:
    devices = (*matrix.gpus, *matrix.nics)
    rows = [
        "\t".join((one, *(f" {matrix.link(one, other)} " for other in devices))) for one in devices
    ]
    legend = [f"  {nic}: {name}" for nic, name in matrix.nic_names.items()]
    header = "\t" + "\t".join((*devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))
    return "\n".join((header, *rows, "", "NIC Legend:", "", *legend))


@given(matrices())
def test_what_is_printed_is_read_back(matrix: LinkMatrix):
    assert parse_matrix(printed(matrix), "made.txt") == matrix


@given(matrices(), st.floats(1e6, 1e8), st.floats(1e6, 1e8), st.integers(1, 18))
def test_no_all_to_all_is_faster_than_all_links_together(
    matrix: LinkMatrix, nvlink_bw: float, pcie_bw: float, gpu_links: int
):
    found = all_to_all_bw(matrix, nvlink_bw, gpu_links, pcie_bw)
    for gpu in matrix.gpus:
        peers = [other for other in matrix.gpus if other != gpu]
        links = sum(matrix.nvlinks(gpu, other) for other in peers)
        over_pcie = any(not matrix.nvlinks(gpu, other) for other in peers) or not peers
        assert found <= (links * nvlink_bw + over_pcie * pcie_bw) * (1 + 1e-9)
    assert found > 0
    islands = shape_of(matrix, gpu_links).islands
    assert sorted(gpu for island in islands for gpu in island) == sorted(matrix.gpus)


def test_links_are_sorted_from_near_to_far():
    assert sorted(sorted(KINDS[4:]), key=distance) == list(KINDS[4:])
    assert {distance(kind) for kind in KINDS[:4]} == {0}
    assert [nvlinks_of(kind) for kind in KINDS] == [1, 2, 4, 18, 0, 0, 0, 0, 0]
