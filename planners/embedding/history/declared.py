"""The declaration of torchrec for `shardbench history`."""

from pathlib import Path

from harness.contract import History
from planners.embedding.releases.declared import RELEASES

_SHARED = RELEASES.driver.parent

HISTORY = History(
    library="torchrec",
    driver=Path(__file__).with_name("driver.py"),
    package="torchrec",
    preloaded=("torch", "fbgemm_gpu", "planners.embedding.workloads.catalog"),
    paths=("torchrec/distributed/planner",),
    problems=("dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",),
    parts={"enumerate": "listing the options", "search": "all else of one plan"},
    counters=RELEASES.counters,
    qualities=RELEASES.qualities,
    helpers=(_SHARED / "observing.py", _SHARED / "planning.py"),
    pull_requests="https://github.com/meta-pytorch/torchrec/pull/{number}",
)
