"""TorchRec's dry run with our planner: python docs/examples/dry_run.py MODE FOLDER [its options]

`MODE` is same-plan or best-plan. Plans are kept in FOLDER and used again. All other options are
those of `python -m torchrec.distributed.planner.dry_run.cli`, such as `--sku-list H100 --world-size
8 --hbm-gb 80 --ddr-gb 512`.
"""

import sys

from torchrec.distributed.planner.dry_run import DryRunOrchestrator, cli
from torchrec.distributed.planner.executor import DefaultPlannerExecutor

from shardbench import PlanCache, PlannerProvider

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    mode, folder, *options = sys.argv[1:]
    provider = PlannerProvider(mode=mode, cache=PlanCache(folder))
    sys.exit(cli.main(options, DryRunOrchestrator(DefaultPlannerExecutor(provider))))
