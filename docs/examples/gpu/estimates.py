"""Print, in Markdown, how good estimates of time are on this machine, on six problems.

`python docs/examples/gpu/estimates.py --device cuda` calibrates the machine and writes
`validations/gpu-cuda.csv`. Then it validates TorchRec's estimate (`torchrec`), the same with fitted
coefficients (`torchrec, fitted`), and ours (`calibrated`). "kernels" are those that most bytes of a
rank are looked up with. Times are kept in `validations/`; the same command resumes.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import json

from harness.estimates.validation import Validation
from harness.model.declared import checked
from harness.model.files import read_file
from reports.core.table import Entry, Table, TableColumn, as_markdown
from reports.estimates.table import agreements_table

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


def shardbench(*words: object) -> int:
    """Run a command with its output on stderr, and return its exit code."""
    command = [sys.executable, "-m", "shardbench", *map(str, words)]
    return subprocess.run(command, check=False, stdout=sys.stderr).returncode


def validated(device: str, workloads: Sequence[str], seconds: float) -> list[Validation]:
    """Calibrate the machine and validate the problems; empty if a command refused."""
    machine = Path("validations") / f"gpu-{device}.csv"
    machine.parent.mkdir(exist_ok=True)
    on = ("--device", device)
    if shardbench("calibrate", "-t", "dgx_h100", "-o", machine, *on, "--share", SHARE[device]):
        return []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        given = [word for one in workloads for word in ("-w", one.format(hbm=HBM[device]))]
        limits = ("--plans", PLANS, "--seconds", seconds, "--gib", GIB)
        shardbench("validate", *given, "-t", machine, "-n", RANKS, *on, *limits, "--json", file)
        if not file.exists():
            return []
        found = json.decode(read_file(file))
        several = found if isinstance(found, list) else [found]
        return [checked(one, Validation, str(file)) for one in several]


def estimates_table(found: Sequence[Validation]) -> Table:
    """Return a row for each estimate of each problem, and the kernels that were measured."""
    table = agreements_table(found)
    kernels = [
        ", ".join(sorted({rank.facts["kernel"] for plan in one.decisions for rank in plan.ranks}))
        for one in found
        for _ in one.agreements
    ]
    column = TableColumn("kernels", "text", Entry)
    rows = ((*row, Entry(named)) for row, named in zip(table.rows, kernels, strict=True))
    return Table((*table.columns, column), tuple(rows))


def main() -> None:
    """Measure, and print the table; exit with 2 if nothing could be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    found = validated(device, WORKLOADS, SECONDS[device])
    if not found:
        sys.exit(2)
    print(as_markdown(estimates_table(found)))


if __name__ == "__main__":
    main()
