"""`shardbench topology`: command lines, output, and written files."""

from functools import partial
from pathlib import Path

import pytest

from harness.topologies.lookup import find_topology, presets

ROOT = Path(__file__).parents[2]
OUTPUTS = ROOT / "tests/topologies/data"
EXAMPLES = ROOT / "docs/examples/topologies"


@pytest.fixture
def topology(shardbench):
    return partial(shardbench, "topology")


class TestCapture:
    def test_a_saved_matrix_gives_a_file_that_every_command_reads(self, topology, tmp_path):
        """The file has the preset's values, and no traps."""
        saved = str(OUTPUTS / "nv18_8_nvswitch.txt")
        code, out, err = topology(
            *("capture", "-o", "dgx.csv", "--from-topo", saved, "--gpu", "H100 SXM"),
            *("--nic-gbits", "400", "--host-memory-gib", "2048"),
        )
        assert (code, err.strip()) == (0, "Wrote dgx.csv")
        assert "450 GB/s" in out
        found, preset = find_topology("dgx.csv", 16), presets()["dgx_h100"]
        for field in ("hbm_bytes", "ddr_bytes", "intra_host_bw", "inter_host_bw", "hbm_bw"):
            assert getattr(found, field) == getattr(preset, field)
        assert topology("check", "dgx.csv", "-n", "64")[0] == 0
        assert topology("show", "dgx.csv")[0] == 0

    def test_without_a_gpu_nothing_is_written(self, topology, monkeypatch, tmp_path):
        """The error names what failed, and what to do."""
        monkeypatch.setenv("PATH", "")
        code, _, err = topology("capture", "-o", "mine.csv")
        assert code == 1
        assert "Not seen: nvidia-smi: The driver's program nvidia-smi is not installed." in err
        assert list(tmp_path.iterdir()) == []


class TestShow:
    def test_presets_have_their_links_named(self, topology):
        """Switches, meshes, pairs and PCIe, of one domain or several."""
        for name, links in {
            "dgx_h100": "NVSwitch",
            "v100_x8": "hybrid cube mesh",
            "mi300x_x8": "direct links of each pair",
            "aws_g5_48xlarge": "PCIe",
        }.items():
            code, out, _ = topology("show", name)
            assert (code, f"In a domain: {links}" in out.replace("a hybrid", "hybrid")) == (0, True)
            assert "in 2 domains" in out
            assert "Between domains: " in out
            assert max(map(len, out.splitlines())) <= 80

    def test_a_saved_matrix_has_its_groups_devices_and_bandwidth(self, topology):
        """Without the GPU's name there is no bandwidth."""
        file = str(OUTPUTS / "v100_4_power9_pairs.txt")
        code, out, _ = topology("show", file, "--gpu", "V100")
        assert code == 0
        assert "NVLink joins: GPU0, GPU1; GPU2, GPU3." in out
        assert "Nearest to GPU0, GPU1: mlx5_0, mlx5_1 (" in out
        assert "(stored 23625000)" in out
        assert "Name the GPU with --gpu" in topology("show", file)[1]


class TestCheck:
    def test_the_example_has_its_traps(self, topology):
        """Each trap has a value to write instead."""
        code, out, _ = topology("check", str(EXAMPLES / "traps.csv"))
        assert code == 1
        said = " ".join(out.split())  # the file's path may take a line of its own
        assert "row 1 (mine): 6 findings; compared with the data sheet of H100-SXM5-80GB" in said
        assert out.count("      write ") == 6

    def test_torchrecs_arguments_are_checked(self, topology):
        """A family reads its library's own arguments."""
        code, out, _ = topology("check", str(EXAMPLES / "torchrec_nvl72.json"))
        assert code == 1
        assert "write local_world_size=72, without pod_size" in out

    def test_what_a_file_holds_cannot_write_to_the_terminal(self, topology, tmp_path):
        """Control characters are escaped."""
        row = "a\x1b[2J,T\x1b4,\x1b,1,1,1,1,1,1,1"
        header = (EXAMPLES / "traps.csv").read_text().splitlines()[1]
        (tmp_path / "bad.csv").write_text(f"{header}\n{row}\n")
        code, out, _ = topology("check", "bad.csv")
        assert (code, "\x1b" in out) == (1, False)
