"""Print, in Markdown, how far estimated peaks of memory are from counted ones on ten problems.

`python docs/examples/memory.py terms` prints the terms of the estimates instead of the peaks. The
results are kept in `validations/`, so the second table needs no further measurement.
With `--device cuda` a GPU is measured, also with Adam.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import json

from harness.estimates.memory import MemoryValidation
from harness.model.declared import checked
from harness.model.files import read_file
from reports.core.table import as_markdown
from reports.estimates.memory_table import peaks_table, terms_table

SIZE = "weights=cpu,mib=300"
WORKLOADS = (
    f"criteo-kaggle[{SIZE}]",
    f"dlrm-dcnv2[{SIZE}]",
    f"merlin-small[tables=40,seed=5,{SIZE}]",
    f"merlin-medium[tables=60,seed=5,{SIZE}]",
    f"merlin-large[tables=80,seed=5,{SIZE}]",
    f"dlrm-856[tables=30,seed=5,{SIZE}]",
    f"dlrm-856[tables=100,seed=6,{SIZE}]",
    f"synthetic[tables=15,seed=11,{SIZE}]",
    f"synthetic[tables=30,seed=12,{SIZE}]",
    f"synthetic[tables=60,seed=13,{SIZE}]",
)

parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("table", nargs="?", choices=("peaks", "terms"), default="peaks")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
given = parser.parse_args()

with TemporaryDirectory() as folder:
    found = Path(folder) / "found.json"
    options = [word for workload in WORKLOADS for word in ("-w", workload)]
    command = [sys.executable, "-m", "shardbench", "validate", "--memory", *options]
    command += ["-t", "dgx_h100", "-n", "16", "--plans", "3", "--device", given.device]
    done = subprocess.run([*command, "--json", str(found)], check=False, stdout=subprocess.DEVNULL)
    # The command has written why. A GPU's memory may be too small for some problems.
    if not found.exists() or (done.returncode and given.device == "cpu"):
        sys.exit(2)
    problems = [checked(one, MemoryValidation, str(found)) for one in json.decode(read_file(found))]
print(as_markdown((terms_table if given.table == "terms" else peaks_table)(problems)))
