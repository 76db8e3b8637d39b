"""The dtensor family's studies for reports, and its headlines, claims and goals."""

from harness.contract import Claim, Pair, Statement, Study

LADDER = ("before", "after", "no-pytree", "upstream")

_HOST = "dgx_a100_80gb:8"
_HOSTS = "dgx_a100_80gb:16"
_ORDINARY = f"ops[op=addmm+mm+mul+relu+view+t]/{_HOST}"
_MLP = "mlp/dgx_h100:8"
_MISS_3D = f"miss[dims=3,op=addmm+mm+mul+relu]/{_HOSTS}"
_MISS_4D = f"miss[dims=4,op=addmm+mm+mul+relu]/{_HOSTS}"
_CASES_2D = f"miss[dims=2,cases=10]/{_HOSTS}"
_CASES_3D = f"miss[dims=3,cases=30]/{_HOSTS}"
_SINGLE, _FOREACH, _FUSED, _CLIPPED = (
    f"optimizer[impl={options},params=150]/{_HOST}"
    for options in ("single", "foreach", "fused", "fused,clip=norm")
)

_FSDP2 = f"fsdp2-step[impl=fused]/{_HOST}"

_HIT = ("upstream", "interned")
_STEP = ("upstream", "interned", "plain-step", "local-step")
_TRAINING = ("upstream", "interned", "local-step", "accelerated")
_MISS = ("upstream", "dijkstra", "exact-miss")
_SIZES = ("upstream", "interned", "shape-class")

# Studies against `upstream`: problem, variants, purpose, whether the study is large, then the goal
# of the last variant: its subject, and the least speed-up over `upstream` (0 for no goal).
_AGAINST_UPSTREAM = (
    (_ORDINARY, _HIT, "a hit", False, "ordinary ops", 1.2),
    (f"ops[op=add-scalar]/{_HOST}", _HIT, "a hit", False, "x + 1.0", 2),
    (f"ops[op=view-sharded]/{_HOST}", _HIT, "a hit", True, "a sharded view", 2),
    (_MLP, _HIT, "a hit", False, "an MLP", 1.3),
    (f"transformer-block/{_HOST}", _HIT, "a hit", True, "a transformer block", 1.4),
    (_SINGLE, _STEP, "an optimizer step", True, "an optimizer step, a for-loop,", 4.5),
    (_FOREACH, _STEP, "an optimizer step", True, "an optimizer step, foreach,", 2),
    (_FUSED, _STEP, "an optimizer step", True, "an optimizer step, fused,", 4),
    (_CLIPPED, _STEP, "an optimizer step", True, "an optimizer step, clipped and fused,", 3),
    (_FSDP2, _TRAINING, "training", True, "a training step under fully_shard", 1.25),
    (f"miss/{_HOSTS}", _MISS, "a miss", True, "", 0),
    (f"miss[dims=2]/{_HOSTS}", _MISS, "a miss", True, "", 0),
    (_MISS_3D, _MISS, "a miss", False, "a miss in 3 dimensions", 100),
    (_MISS_4D, _MISS, "a miss", True, "a miss in 4 dimensions", 700),
    (_CASES_2D, _MISS, "decisions on a miss", False, "", 0),
    (_CASES_3D, _MISS, "decisions on a miss", True, "", 0),
    (f"dynamic/{_HOSTS}", ("upstream", "shape-class"), "new sizes", False, "new sizes", 45),
    (f"dynamic[dims=2]/{_HOSTS}", _SIZES, "new sizes", True, "new sizes in 2 dimensions", 150),
)

STUDIES = (
    Study(f"ops[op=addmm]/{_HOST}", LADDER, "published ladder"),
    Study(f"mlp/{_HOST}", (*LADDER, "interned"), "published ladder", large=True),
    Study(f"ops/{_HOST}", (*LADDER, "uncached", "interned"), "published ladder", large=True),
    *(
        Study(problem, variants, purpose, against="upstream", large=large)
        for problem, variants, purpose, large, _, _ in _AGAINST_UPSTREAM
    ),
)

_GOALS = (
    *(
        Statement(
            "goal",
            f"{subject} at least {limit:g} times as fast",
            problem,
            "upstream",
            variants[-1],
            at_least=limit,
        )
        for problem, variants, _, _, subject, limit in _AGAINST_UPSTREAM
        if limit
    ),
    *(
        Statement(
            "goal",
            f"no decision worse than the exhaustive search's in {dimensions} dimensions",
            problem,
            "",
            "exact-miss",
            "worse_decisions",
            at_most=0,
        )
        for dimensions, problem in ((2, _CASES_2D), (3, _CASES_3D))
    ),
)

_CLAIMS = (
    Statement(
        "claim",
        "DTensor #107305, addmm",
        f"ops[op=addmm]/{_HOST}",
        "before",
        "after",
        published=Claim(0.476, 0.341, "ms", "one addmm on a GPU, from a profiler"),
        counter="pytree_passes",
    ),
    Statement(
        "claim",
        "DTensor #107305, MLP",
        _MLP,
        "before",
        "after",
        counter="pytree_passes",
        remark="Before and after are our own code, from descriptions of the releases, and are "
        "recorded without a GPU and a profiler.",
    ),
)

_HEADLINES = (
    Statement(
        "headline",
        "DTensor",
        _MLP,
        "upstream",
        "interned",
        claim="DTensor #107305, MLP",
        counter="strategies_expanded",
        counted=(
            Pair(f"miss[dims=2,cases=40]/{_HOSTS}", "upstream", "exact-miss"),
            Pair(_CASES_2D, "upstream", "exact-miss"),
        ),
        before_is="torch as installed",
        next_step="`shardbench.accelerate()` before training; kernels and communication stay",
    ),
    Statement("headline", "DTensor", _CASES_2D, "upstream", "exact-miss", "redistribute_us"),
)

STATEMENTS = (*_HEADLINES, *_CLAIMS, *_GOALS)
