"""The parser of `nvidia-smi topo -m` and what follows from it, on public and on made-up outputs."""

import re
from contextlib import suppress
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, strategies as st
from public_outputs import KNOWN, output

from harness.model.errors import UsageError
from harness.topologies.links import (
    LinkMatrix,
    all_to_all_bw,
    near_nics,
    parse_matrix,
    shape_of,
    usual_links,
)
from harness.topologies.lookup import find_gpu_kind, require_gpu_kind


def body(name: str) -> list[str]:
    return [line for line in output(name).splitlines() if not line.startswith("#")]


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        parse_matrix(text, "topo.txt")
    return str(refused.value)


@pytest.mark.parametrize("name", sorted(KNOWN))
class TestPublicOutputs:
    def test_devices_and_links_are_as_printed(self, name):
        """Every entry of a public output is read."""
        matrix, known = parse_matrix(output(name), name), KNOWN[name]
        assert (len(matrix.gpus), len(matrix.nics)) == (known.gpus, known.nics)
        devices = (*matrix.gpus, *matrix.nics)
        lines = [line.split() for line in body(name) if line.strip()]
        header = next(at for at, words in enumerate(lines) if "GPU0" in words)
        rows = lines[header + 1 : header + 1 + len(devices)]
        printed = [words[1 : 1 + len(devices)] for words in rows]
        assert [[matrix.links[a, b] for b in devices] for a in devices] == printed

    def test_groups_bandwidth_and_near_devices_are_as_worked_out_by_hand(self, name):
        """What follows from a matrix is known for each public output."""
        matrix = parse_matrix(output(name), name)
        known, kind = KNOWN[name], require_gpu_kind(KNOWN[name].gpu)
        shape = shape_of(matrix, kind)
        assert tuple(map(len, shape.islands)) == known.islands
        bandwidth = all_to_all_bw(matrix, kind, kind.host_link_bw)
        assert bandwidth == pytest.approx(known.all_to_all * 1e6)
        near = near_nics(matrix, matrix.nics)
        assert (near[matrix.gpus[0]][0] if near else ()) == known.near
        hosts = 18 if known.gpu == "GB200" else 1
        assert usual_links(kind, known.gpus, hosts, bandwidth) == shape.by

    def test_tabs_spaces_and_escapes_mean_the_same(self, name):
        """Copies from terminals and files are the same matrix."""
        lines = body(name)
        matrix = parse_matrix("\n".join(lines), name)
        header = next(at for at, line in enumerate(lines) if "GPU0" in line)
        underlined = [*lines]
        underlined[header] = f"\t\x1b[4m{lines[header].strip()}\x1b[0m"
        spaced = [re.sub(r"[\t ]+", "        ", line) for line in lines]
        around = ["user@host:~$ nvidia-smi topo -m", *lines, "user@host:~$ exit"]
        for changed in (underlined, spaced, around, [f"{line}\r" for line in lines]):
            assert parse_matrix("\n".join(changed), name) == matrix

    def test_a_copy_that_was_cut_or_wrapped_is_refused(self, name):
        """The sentence names the first line that is wrong."""
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
    """As in https://gist.github.com/ashwin/e139748bdba15f5af63f0146d01ee4c3, of 2017."""
    matrix = parse_matrix("GPU0 GPU1 CPU Affinity\nGPU0 X SOC 0-9\nGPU1 SOC X 10-19\n", "old")
    assert matrix.links["GPU0", "GPU1"] == "SYS"


def test_a_single_gpu_is_a_matrix():
    """It exchanges with other hosts alone."""
    matrix = parse_matrix("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "one.txt")
    assert shape_of(matrix, None).how == "a single GPU"
    assert all_to_all_bw(matrix, None, 63e6) == 63e6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NVIDIA-SMI has failed", "topo.txt: no matrix of `nvidia-smi topo -m` is in it"),
        ("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X\n", "line 3: GPU1 cannot be joined with GPU0 by NV2"),
        ("GPU0 GPU1\nGPU0 NV1 X\nGPU1 X NV1\n", "line 2: GPU0 cannot be joined with GPU0 by NV1"),
        ("GPU0 GPU0\nGPU0 X X\n", "line 1: 'GPU0' is no name of a device, or is there twice"),
        ("GPU0 GPU1\nGPU0 X FAR\nGPU1 FAR X\n", "line 2: the row of GPU0 must be here, with 2"),
        ("GPU0 GPU1\nGPU1 X NV4\nGPU0 NV4 X\n", "line 2: the row of GPU0 must be here"),
        ("GPU0 \x00\n", "'\\x00' is no name of a device"),
    ],
)
def test_what_is_no_matrix_is_refused_with_its_line(text, said):
    """Links must be symmetric and known."""
    assert said in refusal(text)


@given(st.text(alphabet="GPU01 XNV4SYPI\t\n#", max_size=200))
def test_any_text_is_read_or_refused_with_a_sentence(text):
    """A matrix that is read is symmetric."""
    with suppress(UsageError):
        matrix = parse_matrix(text, "topo.txt")
        assert all(matrix.links[a, b] == matrix.links[b, a] for a, b in matrix.links)


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
    """A preset without a matrix has the usual links of its GPU."""
    assert usual_links(find_gpu_kind(gpu), gpus, 1, 450e6) == by


KINDS = ("NV1", "NV2", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS")


@st.composite
def matrices(draw: st.DrawFn) -> LinkMatrix:
    gpus = tuple(f"GPU{n}" for n in range(draw(st.integers(1, 9))))
    nics = tuple(f"mlx5_{n}" for n in range(draw(st.integers(0, 4))))
    links = {(device, device): "X" for device in (*gpus, *nics)}
    for a, b in combinations((*gpus, *nics), 2):
        kind = draw(st.sampled_from(KINDS if b in gpus else KINDS[4:]))
        links[a, b] = links[b, a] = kind
    return LinkMatrix(gpus, nics, links)


@given(matrices())
def test_what_is_printed_is_read_back(matrix):
    """Any matrix is the same after it is printed and read."""
    printed = {nic: f"NIC{number}" for number, nic in enumerate(matrix.nics)}
    devices = (*matrix.gpus, *matrix.nics)
    names = [printed.get(device, device) for device in devices]
    rows = [
        "\t".join((name, *(matrix.links[device, other] for other in devices)))
        for name, device in zip(names, devices, strict=True)
    ]
    legend = [f"  {name}: {nic}" for nic, name in printed.items()]
    header = "\t" + "\t".join((*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))
    text = "\n".join((header, *rows, "", "NIC Legend:", "", *legend))
    assert parse_matrix(text, "made.txt") == matrix


@given(matrices(), st.floats(1e6, 1e8), st.floats(1e6, 1e8), st.integers(1, 18))
def test_no_all_to_all_is_faster_than_all_links_together(matrix, nvlink_bw, pcie_bw, nvlinks):
    """Islands of a matrix contain each GPU once."""
    kind = msgspec.structs.replace(
        require_gpu_kind("H100 SXM"), nvlink_bw=nvlink_bw, nvlinks=nvlinks
    )
    bandwidth = all_to_all_bw(matrix, kind, pcie_bw)
    for gpu in matrix.gpus:
        peers = [other for other in matrix.gpus if other != gpu]
        links = sum(matrix.nvlinks(gpu, other) for other in peers)
        over_pcie = any(not matrix.nvlinks(gpu, other) for other in peers) or not peers
        assert 0 < bandwidth <= (links * nvlink_bw + over_pcie * pcie_bw) * (1 + 1e-9)
    islands = shape_of(matrix, kind).islands
    assert sorted(gpu for island in islands for gpu in island) == sorted(matrix.gpus)
