"""Print how far estimated peaks of memory are from counted ones on ten problems.

The results are kept in `validations/`; the same command resumes. With `--device cuda` a GPU is
measured, also with Adam.
"""

from common import device_of, validated

from harness.estimates.memory import MemoryValidation
from reports.core.table import as_markdown
from reports.estimates import peaks_table

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

if __name__ == "__main__":
    words = [word for workload in WORKLOADS for word in ("-w", workload)]
    words += ["-t", "dgx_h100", "-n", "16", "--plans", "3", "--device", device_of(__doc__)]
    print(as_markdown(peaks_table(validated(MemoryValidation, "--memory", *words))))
