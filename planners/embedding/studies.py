"""The embedding family's studies for reports, and its goals for speed and quality."""

from harness.contract import Goal, OverviewRow, Study

PUBLISHED = ("double-deepcopy", "single-deepcopy", "custom-deepcopy", "copy-if-better")
RELEASED = ("no-topology-copy", "cheap-device-copies", "upstream")
POSSIBLE = (
    "remembered-annotations",
    "no-space-copy",
    "distinct-shards",
    "shared-device-figures",
    "remembered-hashes",
    "remembered-totals",
)
LADDER = (*PUBLISHED, *RELEASED, *POSSIBLE, "compiled")
SAME = ("upstream", "compiled")
OTHER_PROPOSERS = ("uniform", "greedy-sum", "default", "dp-torchrec")
OWN = ("dp-tzrec", "dp-compiled", "dp-tzrec-2d", "dp-compiled-2d", "certified")

_LADDER = "dlrm-856[tables=60,seed=1]/dgx_a100_80gb:16"
_SMALL_TIGHT = "dlrm-856[tables=16,seed=2,memory=tight]/dgx_a100_80gb:16"
_ROOMY = "synthetic[tables=100,seed=7,memory=roomy]/dgx_a100_80gb:16"
_TIGHT = "synthetic[tables=100,seed=7,memory=tight]/dgx_a100_80gb:16"
_MIXED = "synthetic[tables=100,seed=7,memory=mixed]/dgx_a100_80gb:16"
_WIDE = "synthetic[tables=200,seed=7,memory=roomy]/dgx_a100_80gb:32"
_DYNAMIC = "synthetic[tables=300,seed=7]/dgx_a100_80gb:64"
_ADS = "synthetic[tables=1000,seed=7,memory=roomy]/dgx_a100_80gb:128"


def _large(problem: str, purpose: str, first: str, *others: str) -> Study:
    return Study(problem, (first, *others), purpose, against=first, large=True)


STUDIES = (
    Study(
        _LADDER,
        ("upstream", "compiled", "certified"),
        "copying ladder",
        against="upstream",
        counted=("double-deepcopy", "custom-deepcopy", "copy-if-better", "remembered-totals"),
    ),
    *(
        Study(f"dlrm-856[tables={tables},seed=1]/dgx_a100_80gb:16", SAME, "growth", "upstream")
        for tables in (2, 4, 8, 16)
    ),
    Study(
        _SMALL_TIGHT,
        ("upstream", "default", "dp-torchrec", "compiled", "dp-tzrec", "dp-compiled", "certified"),
        "time against quality",
        against="upstream",
    ),
    *(
        _large(
            problem, "time against quality", "upstream", *OTHER_PROPOSERS, "compiled", "certified"
        )
        for problem in (_ROOMY, _TIGHT, _MIXED)
    ),
    _large(_WIDE, "a wide search", "upstream", "compiled", "certified"),
    _large(_DYNAMIC, "dynamic programming", "dp-tzrec", *OWN[1:]),
    Study(_ADS, ("upstream", "compiled", "certified"), "an ads model", against="upstream"),
)


def _certified(text: str, problem: str, limit: float, quality: str, against: str = "") -> Goal:
    return Goal(text, problem, "certified", "quality", limit, against, quality)


def _near_the_best(problem: str, kind: str) -> tuple[Goal, ...]:
    no_worse = f"no worse than any other variant where memory is {kind}"
    gap = f"at most a third of the others' gap where memory is {kind}"
    return (
        _certified(no_worse, problem, 1.0, "max_rank_ms", "others"),
        _certified(gap, problem, 1 / 3, "gap", "others"),
    )


GOALS = (
    *_near_the_best(_SMALL_TIGHT, "tight"),
    *_near_the_best(_TIGHT, "tight"),
    *_near_the_best(_MIXED, "mixed"),
    *(
        _certified("a gap of at most 1 % where memory is plenty", problem, 0.01, "gap")
        for problem in (_ROOMY, _WIDE, _ADS)
    ),
    Goal.times_faster("200 tables on 32 GPUs", _WIDE, "compiled", 40, "upstream"),
    Goal.times_faster("1000 tables on 128 GPUs", _ADS, "compiled", 300, "upstream"),
    Goal("1000 tables on 128 GPUs in at most 6 s", _ADS, "compiled", "seconds", 6),
    Goal("less memory than torchrec", _ADS, "compiled", "peak memory", 1.0, "upstream"),
    Goal("a plan for 1000 tables on 128 GPUs in 10 s", _ADS, "certified", "seconds", 10),
    Goal.times_faster("dynamic programming", _DYNAMIC, "dp-compiled", 100, "dp-tzrec"),
)

_NEXT_STEP = (
    "TorchRec: use `shardbench.Planner` instead of `EmbeddingShardingPlanner`, with the same "
    'arguments; `mode="best-plan"` searches for a better plan.'
)

OVERVIEW = (
    OverviewRow(
        "TorchRec",
        problem=_LADDER,
        today="upstream",
        ours="compiled",
        place=10,
        published="custom-deepcopy",
        best="certified",
        counter="device_copies",
        rated="default",
        rated_on=_SMALL_TIGHT,
        today_is="TorchRec as installed, with its greedy proposer",
        next_step=_NEXT_STEP,
    ),
    OverviewRow(
        "TorchRec, dynamic programming",
        problem=_SMALL_TIGHT,
        today="dp-torchrec",
        ours="dp-compiled",
        place=11,
        published="dp-torchrec",
        before="default",
        best="certified",
        counter="device_copies",
        today_is="TorchRec as installed, with its dynamic programming",
    ),
    OverviewRow(
        "TorchRec, 1000 tables, 128 GPUs",
        problem=_ADS,
        today="upstream",
        ours="compiled",
        place=12,
        best="certified",
        today_is="TorchRec as installed, with its greedy proposer",
        next_step=_NEXT_STEP,
    ),
)
