"""Print how good estimates of time are on twelve problems that no fit has seen.

`python record/scripts/unseen_problems.py --device cpu MACHINE` validates TorchRec's estimate
(`torchrec`) and that of a calibrated machine (`calibrated`): a name, or a file of `shardbench
calibrate`. Times are kept in `validations/`; the same command resumes. The measured plans go into
`record/plans/MACHINE.jsonl`. The first table sums up the second one. The goals: top 1 on 10
problems, a mean regret of 3 %, an error of 10 %.
"""

from pathlib import Path

from common import device_and_machine_of, keep_plans, validated

from harness.estimates.validation import Validation
from reports.core.table import as_markdown
from reports.estimates import agreements_table, summary_table

WORKLOADS = (
    *(f"synthetic[tables={tables},seed=5{tables},memory=roomy]" for tables in (12, 20, 30, 50)),
    *(f"merlin-medium[tables={tables},seed=61,memory=roomy]" for tables in (20, 40)),
    *(f"merlin-small[tables={tables},seed=62,memory=roomy]" for tables in (20, 40)),
    *(f"dlrm-856[tables={tables},seed=63,memory=roomy]" for tables in (20, 60)),
    "merlin-large[tables=40,seed=65,memory=roomy]",
    "dlrm-dcnv2",
)
RANKS, PLANS, SECONDS, GIB = 8, 10, 25, 3


def main() -> None:
    """Validate the problems, and print the tables."""
    device, machine = device_and_machine_of(__doc__)
    words = [word for workload in WORKLOADS for word in ("-w", workload)]
    on = ("-t", "dgx_h100", "-n", RANKS, "--machine", machine, "--device", device)
    limits = ("--plans", PLANS, "--seconds", SECONDS, "--gib", GIB)
    validations = validated(Validation, *words, *on, *limits)
    keep_plans(validations, Path(machine).stem)
    print(as_markdown(summary_table(validations)), end="\n\n")
    print(as_markdown(agreements_table(validations)))


if __name__ == "__main__":
    main()
