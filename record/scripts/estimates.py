"""Print how good estimates of time are on this machine, on six problems.

`python record/scripts/estimates.py --device cuda` calibrates the machine and writes
`validations/gpu-cuda.toml`, which is kept in `record/machines/` under the GPU's name. Then it
validates TorchRec's estimate (`torchrec`) and ours (`calibrated`). "kernels" are those that most
bytes of a rank are looked up with. Times are kept in `validations/`; the same command resumes.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import torch
from common import device_of, keep_plans, shardbench, validated

from harness.estimates.validation import Validation
from reports.core.table import Entry, TableColumn, as_markdown
from reports.estimates import agreements_table

# Problems without enough HBM for their tables need managed and cached tables; a CPU has neither.
HBM = {"cpu": "4", "cuda": "0.6"}
WORKLOADS = (
    "synthetic[tables=20,seed=7,memory=roomy]",
    "synthetic[tables=40,seed=8,memory=roomy]",
    "merlin-medium[tables=40,seed=5,memory=roomy]",
    "dlrm-856[tables=40,seed=5,memory=roomy]",
    "mixture[tables=20,seed=3,kernels=all,hbm={hbm},ddr=4]",
    "mixture[tables=30,seed=4,kernels=all,hbm={hbm},ddr=4]",
)
# The part of a calibration's kernels, the plans of a problem, and the seconds to measure them.
SHARE, PLANS, SECONDS = {"cpu": 0.1, "cuda": 0.25}, 10, {"cpu": 20, "cuda": 50}
GIB = 4  # of a rank: building larger tables takes longer than measuring them
RANKS = 8


def main() -> None:
    """Calibrate the machine, validate the problems, and print the table."""
    device = device_of(__doc__)
    machine = Path("validations") / f"gpu-{device}.toml"
    machine.parent.mkdir(exist_ok=True)
    on: tuple[object, ...] = ("--device", device)
    if shardbench("calibrate", "-o", machine, *on, "--share", SHARE[device]):
        sys.exit(2)  # the command says why
    name = machine.stem
    if device == "cuda":
        name = torch.cuda.get_device_name().lower().replace(" ", "_")
        kept = Path(__file__).parents[1] / "machines" / f"{name}.toml"
        kept.parent.mkdir(exist_ok=True)
        shutil.copy(machine, kept)
    words = [word for one in WORKLOADS for word in ("-w", one.format(hbm=HBM[device]))]
    on += ("-t", "dgx_h100", "-n", RANKS, "--machine", machine)
    limits = ("--plans", PLANS, "--seconds", SECONDS[device], "--gib", GIB)
    validations = validated(Validation, *words, *on, *limits)
    keep_plans(validations, name)
    table = agreements_table(validations)
    # One row for each estimate of a problem; all of them have the kernels of its plans.
    kernels = [
        Entry(", ".join(sorted({r.facts["kernel"] for plan in one.decisions for r in plan.ranks})))
        for one in validations
        for _ in one.agreements
    ]
    rows = tuple((*row, named) for row, named in zip(table.rows, kernels, strict=True))
    columns = (*table.columns, TableColumn("kernels", "text", Entry))
    print(as_markdown(replace(table, columns=columns, rows=rows)))


if __name__ == "__main__":
    main()
