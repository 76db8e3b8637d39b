"""The public outputs of `nvidia-smi topo -m` in `data/`, and known facts about their machines."""

from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"


class Known(NamedTuple):
    """Facts that a person reads off an output.

    `all_to_all` is a bandwidth in GB/s, computed by hand; `near` are the first GPU's nearest NICs.
    """

    gpu: str
    gpus: int
    nics: int
    islands: tuple[int, ...]
    all_to_all: float
    near: tuple[str, ...]


# Shares of an all-to-all by hand: a switch or own links, all of them at once; else the PCIe link.
KNOWN = {
    "a100_4_polaris": Known("A100-SXM4-40GB", 4, 2, (4,), 300, ("mlx5_0", "mlx5_1")),
    "a100_pcie_2": Known("A100-PCIE-40GB", 2, 2, (1, 1), 31.5, ("mlx5_0",)),
    "a800_8_nvswitch": Known("A800-SXM4-80GB", 8, 4, (8,), 200, ("mlx5_0", "mlx5_1")),
    "dgx_a100": Known("A100-SXM4-40GB", 8, 12, (8,), 300, ("mlx5_0", "mlx5_1")),
    "gb200_4_tray": Known("GB200", 4, 8, (4,), 900, tuple(f"mlx5_{n}" for n in range(8))),
    "h100_4_hgx": Known("H100 SXM", 4, 4, (4,), 450, ("NIC0",)),
    "l40s_4": Known("L40S", 4, 2, (1, 1, 1, 1), 31.5, ("mlx5_0", "mlx5_1")),
    "nv12_2_without_affinity": Known("A100 SXM4 80GB", 2, 8, (2,), 300, ("NIC6", "NIC7")),
    "nv18_8_nvswitch": Known("H200", 8, 8, (8,), 450, ("mlx5_1",)),
    "rtx4090_8": Known("RTX 4090", 8, 2, (1,) * 8, 31.5, ("NIC0", "NIC1")),
    "rtx5090_2": Known("RTX 5090", 2, 0, (1, 1), 63, ()),
    # A third to the NVLink peer at 75 GB/s, two thirds over 15.75 GB/s of PCIe.
    "v100_4_power9_pairs": Known("V100", 4, 4, (2, 2), 15.75 * 3 / 2, ("mlx5_0", "mlx5_1")),
    # Three of seven peers over 15.75 GB/s of PCIe.
    "v100_8_hybrid_cube_mesh": Known("V100", 8, 1, (8,), 15.75 * 7 / 3, ("mlx5_0",)),
}


def output(name: str) -> str:
    """Return the text of a public output, with the lines that state its source."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")
