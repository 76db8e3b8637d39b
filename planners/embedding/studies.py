"""The embedding family's studies for reports, and its headlines, claims and goals."""

from typing import Any

from harness.contract import OTHERS, Claim, Pair, Statement, Study

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


def _goal(text: str, problem: str, after: str, before: str = "", **limits: Any) -> Statement:
    return Statement("goal", text, problem, before, after, **limits)


_NEAR_THE_BEST = [
    _goal(text, problem, "certified", OTHERS, measure=quality, at_most=limit)
    for problem, kind in ((_SMALL_TIGHT, "tight"), (_TIGHT, "tight"), (_MIXED, "mixed"))
    for text, quality, limit in (
        (f"no worse than any other variant where memory is {kind}", "max_rank_ms", 1.0),
        (f"at most a third of the others' gap where memory is {kind}", "gap", 1 / 3),
    )
]
_NEAR_THE_BOUND = [
    _goal("a gap of at most 1 % where memory is plenty", problem, "certified", measure="gap",
          at_most=0.01)
    for problem in (_ROOMY, _WIDE, _ADS)
]  # fmt: skip

_GOALS = (
    *_NEAR_THE_BEST,
    *_NEAR_THE_BOUND,
    _goal("200 tables on 32 GPUs, 40 times as fast", _WIDE, "compiled", "upstream", at_least=40),
    _goal("1000 tables on 128 GPUs, 300 times as fast", _ADS, "compiled", "upstream", at_least=300),
    _goal("1000 tables on 128 GPUs in 6 s", _ADS, "compiled", measure="seconds", at_most=6),
    _goal("no more memory than torchrec", _ADS, "compiled", "upstream", measure="peak memory",
          at_most=1.0),
    _goal("a plan for 1000 tables on 128 GPUs in 10 s", _ADS, "certified", measure="seconds",
          at_most=10),
    _goal("dynamic programming, 100 times as fast", _DYNAMIC, "dp-compiled", "dp-tzrec",
          at_least=100),
)  # fmt: skip

# Of commits of TorchRec: `torchrec/` and the hash.
_BEFORE_665 = "torchrec/a1a67aaad52e7333a5d6d503e95063f588c60f51"
_AT_665 = "torchrec/77db94c88b57040a9f32c09fc805b676ba35b85e"
_BEFORE_1143 = "torchrec/1b27f8ee06e73f587816e514951593e57c8302c3"
_AT_1143 = "torchrec/144a99342d559ef8fe59fc1d3f9bc19d82b16668"
_BEFORE_4496 = "torchrec/d130d6e3cc39ccd6edb894d03b0648a9abc37b25"
_AT_4496 = "torchrec/c83b67743042e8f1162a180052ff05855c2e4e7c"
_BEFORE_2286 = "torchrec/9b1f1f250d90022498cf00899aa91e7371176346+default"
_AT_2286 = "torchrec/bea3a2c857489b97e4675a9e7891b7807b3cf9da+dynamic-programming"

_LARGE = "dlrm-856[tables=280,seed=1]/dgx_a100_80gb:64"
_COUNTED = "dlrm-856[tables=40,seed=1]/dgx_a100_80gb:16"
_OF_COMMITS = "dlrm-856[tables=64,seed=1]/dgx_a100_80gb:16"
_OF_2286 = "synthetic[tables=512,seed=7]/dgx_a100_80gb:16"
_REAL_WEIGHTS = "dlrm-856[tables=40,seed=1,weights=cpu,mib=28]/dgx_a100_80gb:16"
_SOME_WEIGHTS = "dlrm-856[tables=120,seed=1,weights=cpu]/dgx_a100_80gb:16"
_ALL_OF_665 = Claim(20, 2.5, "min", "an ads model with more than 1000 proposals")


def _copies(name: str, problem: str, **more: Any) -> Statement:
    quick = Pair(_LADDER, "double-deepcopy", "custom-deepcopy")
    return Statement(
        "claim", f"TorchRec #665, {name}", problem, _BEFORE_665, _AT_665,
        published=_ALL_OF_665, quick=quick, **more,
    )  # fmt: skip


_CLAIMS = (
    _copies(
        "weights on the meta device",
        _LARGE,
        counter="objects_copied",
        counted=(Pair(_COUNTED, _BEFORE_665, _AT_665),),
        remark="Published as more than 20 and about 2.5 minutes, without the numbers of tables and "
        "GPUs and the size of the weights.",
    ),
    _copies("12 MiB of real weights", _SOME_WEIGHTS),
    _copies(
        "28 MiB of real weights",
        _REAL_WEIGHTS,
        remark="The old planner copied the weights with each proposal, so real weights make the "
        "factor larger. Both sizes of weights are our choice.",
    ),
    Statement(
        "claim", "TorchRec #1143", _LARGE, _BEFORE_1143, _AT_1143,
        quick=Pair(_LADDER, "custom-deepcopy", "copy-if-better"),
        counter="plan_copies",
        counted=(Pair(_COUNTED, _BEFORE_1143, _AT_1143),),
    ),
    Statement(
        "claim", "TorchRec #4496", _OF_COMMITS, _BEFORE_4496, _AT_4496,
        quick=Pair(_LADDER, "no-topology-copy", "cheap-device-copies"),
        counter="objects_copied",
    ),
    Statement(
        "claim", "TorchRec #2286, dynamic programming", _OF_2286, _BEFORE_2286, _AT_2286,
        quick=Pair(_SMALL_TIGHT, "default", "dp-torchrec"),
        remark="The default proposers before, the new proposer alone after. The two make different "
        "plans.",
    ),
)  # fmt: skip

_HEADLINES = (
    Statement(
        "headline", "TorchRec", _ADS, "upstream", "compiled",
        quick=Pair(_LADDER, "upstream", "compiled"),
        claim="TorchRec #665, 28 MiB of real weights",
        counter="device_copies",
        counted=(Pair(_LADDER, "upstream", "compiled"),),
        before_is="TorchRec as installed, with its greedy proposer",
        next_step="`shardbench.Planner` in place of `EmbeddingShardingPlanner`",
    ),
    Statement(
        "headline", "TorchRec", _TIGHT, "default", "certified", "max_rank_ms",
        quick=Pair(_SMALL_TIGHT, "default", "certified"),
    ),
    Statement(
        "headline", "TorchRec, dynamic programming", _OF_2286, "dp-torchrec", "dp-compiled",
        quick=Pair(_SMALL_TIGHT, "dp-torchrec", "dp-compiled"),
        claim="TorchRec #2286, dynamic programming",
        before_is="TorchRec as installed, with its dynamic programming",
        next_step="`shardbench.Planner` with the same proposer",
    ),
    Statement(
        "headline", "TorchRec, dynamic programming", _SMALL_TIGHT, "dp-torchrec", "certified",
        "max_rank_ms",
    ),
)  # fmt: skip

STATEMENTS = (*_HEADLINES, *_CLAIMS, *_GOALS)
