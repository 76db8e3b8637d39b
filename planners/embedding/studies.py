"""What is measured of the family in reports, and what it is to reach."""

from harness.contract import Goal, Study

LADDER = ("double-deepcopy", "single-deepcopy", "custom-deepcopy", "copy-if-better", "upstream")
OWN_DECISIONS = ("uniform", "greedy-sum", "default", "dp-torchrec")
BEYOND = ("compiled", "dp-tzrec", "dp-compiled", "certified")

_SMALL_TIGHT = "dlrm-856[tables=32,seed=3,memory=tight]/dgx_a100_80gb:16"
_ROOMY = "synthetic[tables=100,seed=7,memory=roomy]/dgx_a100_80gb:16"
_TIGHT = "synthetic[tables=100,seed=7,memory=tight]/dgx_a100_80gb:16"
_MIXED = "synthetic[tables=100,seed=7,memory=mixed]/dgx_a100_80gb:16"
_WIDE = "synthetic[tables=200,seed=7,memory=roomy]/dgx_a100_80gb:32"
_DYNAMIC = "synthetic[tables=300,seed=7]/dgx_a100_80gb:64"
_ADS = "synthetic[tables=1000,seed=7,memory=roomy]/dgx_a100_80gb:128"

_FEW = ("upstream", "default", "dp-torchrec", "compiled", "dp-compiled", "certified")

STUDIES = (
    *(
        Study(f"dlrm-856[tables={tables},seed=1]/dgx_a100_80gb:16", LADDER, "copying ladder")
        for tables in (4, 8, 12)
    ),
    Study(_SMALL_TIGHT, _FEW, "time against quality", against="upstream"),
    *(
        Study(
            problem,
            ("upstream", *OWN_DECISIONS, "compiled", "certified"),
            "time against quality",
            against="upstream",
            large=True,
        )
        for problem in (_ROOMY, _TIGHT, _MIXED)
    ),
    Study(
        _WIDE,
        ("upstream", "compiled", "certified"),
        "a wide search",
        against="upstream",
        large=True,
    ),
    Study(
        _DYNAMIC,
        ("dp-tzrec", "dp-compiled", "certified"),
        "dynamic programming",
        against="dp-tzrec",
        large=True,
    ),
    Study(
        _ADS, ("upstream", "compiled", "certified"), "an ads model", against="upstream", large=True
    ),
)


def _near_the_best(problem: str, kind: str) -> tuple[Goal, ...]:
    return (
        Goal(
            f"no worse than any other variant where memory is {kind}",
            problem,
            "certified",
            "quality",
            limit=1.0,
            against="others",
            quality="max_rank_ms",
        ),
        Goal(
            f"at most a third of the others' gap where memory is {kind}",
            problem,
            "certified",
            "quality",
            limit=1 / 3,
            against="others",
            quality="gap",
        ),
    )


GOALS = (
    *_near_the_best(_SMALL_TIGHT, "tight"),
    *_near_the_best(_TIGHT, "tight"),
    *_near_the_best(_MIXED, "mixed"),
    *(
        Goal(
            "a gap of at most 1 % where memory is plenty",
            problem,
            "certified",
            "quality",
            limit=0.01,
            quality="gap",
        )
        for problem in (_ROOMY, _WIDE, _ADS)
    ),
    Goal(
        "200 tables on 32 GPUs at least 40 times as fast",
        _WIDE,
        "compiled",
        "times faster",
        limit=40,
        against="upstream",
    ),
    Goal(
        "1000 tables on 128 GPUs at least 300 times as fast",
        _ADS,
        "compiled",
        "times faster",
        limit=300,
        against="upstream",
    ),
    Goal("1000 tables on 128 GPUs in at most 6 s", _ADS, "compiled", "seconds", limit=6),
    Goal(
        "less memory than torchrec", _ADS, "compiled", "peak memory", limit=1.0, against="upstream"
    ),
    Goal("a plan for 1000 tables on 128 GPUs in 10 s", _ADS, "certified", "seconds", limit=10),
    Goal(
        "dynamic programming at least 100 times as fast",
        _DYNAMIC,
        "dp-compiled",
        "times faster",
        limit=100,
        against="dp-tzrec",
    ),
)
