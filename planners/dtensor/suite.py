"""The family's part of reports, and the goals of its variants."""

from harness.contract import Goal, OverviewRow, Study

LADDER = ("before", "after", "no-pytree", "upstream")

_HOST = "dgx_a100_80gb:8"
_HOSTS = "dgx_a100_80gb:16"
_ORDINARY = f"ops[op=addmm+mm+mul+relu+view+t]/{_HOST}"
_SCALAR = f"ops[op=add-scalar]/{_HOST}"
_SHARDED_VIEW = f"ops[op=view-sharded]/{_HOST}"
_MLP = "mlp/dgx_h100:8"
_BLOCK = f"transformer-block/{_HOST}"
_MISS_3D = f"miss[dims=3,op=addmm+mm+mul+relu]/{_HOSTS}"
_MISS_4D = f"miss[dims=4,op=addmm+mm+mul+relu]/{_HOSTS}"
_CASES_2D = f"miss[dims=2,cases=10]/{_HOSTS}"
_CASES_3D = f"miss[dims=3,cases=30]/{_HOSTS}"
_SINGLE, _FOREACH, _FUSED = (
    f"optimizer[impl={each},params=150]/{_HOST}" for each in ("single", "foreach", "fused")
)
_DYNAMIC = f"dynamic/{_HOSTS}"
_DYNAMIC_2D = f"dynamic[dims=2]/{_HOSTS}"

_HIT = ("upstream", "interned")
_MISS = ("upstream", "dijkstra", "exact-miss")
_SIZES = ("upstream", "interned", "shape-class")

STUDIES = (
    Study(f"ops[op=addmm]/{_HOST}", LADDER, "published ladder"),
    Study(f"mlp/{_HOST}", (*LADDER, "interned"), "published ladder", large=True),
    Study(f"ops/{_HOST}", (*LADDER, "uncached", "interned"), "published ladder", large=True),
    *(
        Study(problem, variants, purpose, against="upstream", large=large)
        for problem, variants, purpose, large in (
            (_ORDINARY, _HIT, "a hit", False),
            (_SCALAR, _HIT, "a hit", False),
            (_SHARDED_VIEW, _HIT, "a hit", True),
            (_MLP, _HIT, "a hit", False),
            (_BLOCK, _HIT, "a hit", True),
            (_SINGLE, _HIT, "an optimizer step", True),
            (_FOREACH, _HIT, "an optimizer step", True),
            (_FUSED, _HIT, "an optimizer step", True),
            (f"miss/{_HOSTS}", _MISS, "a miss", True),
            (f"miss[dims=2]/{_HOSTS}", _MISS, "a miss", True),
            (_MISS_3D, _MISS, "a miss", False),
            (_MISS_4D, _MISS, "a miss", True),
            (_CASES_2D, _MISS, "decisions on a miss", False),
            (_CASES_3D, _MISS, "decisions on a miss", True),
            (_DYNAMIC, ("upstream", "shape-class"), "new sizes", False),
            (_DYNAMIC_2D, _SIZES, "new sizes", True),
        )
    ),
)

GOALS = (
    *(
        Goal.times_faster(what, problem, variant, limit, against="upstream")
        for what, problem, variant, limit in (
            ("ordinary ops", _ORDINARY, "interned", 1.2),
            ("x + 1.0", _SCALAR, "interned", 2),
            ("a sharded view", _SHARDED_VIEW, "interned", 2),
            ("an MLP", _MLP, "interned", 1.3),
            ("a transformer block", _BLOCK, "interned", 1.4),
            ("an optimizer step, a for-loop,", _SINGLE, "interned", 2.5),
            ("an optimizer step, foreach,", _FOREACH, "interned", 2),
            ("an optimizer step, fused,", _FUSED, "interned", 2),
            ("a miss in 3 dimensions", _MISS_3D, "exact-miss", 100),
            ("a miss in 4 dimensions", _MISS_4D, "exact-miss", 700),
            ("new sizes", _DYNAMIC, "shape-class", 45),
            ("new sizes in 2 dimensions", _DYNAMIC_2D, "shape-class", 150),
        )
    ),
    *(
        Goal(
            f"no decision worse than the exhaustive search's in {dimensions} dimensions",
            problem,
            "exact-miss",
            "quality",
            limit=0,
            quality="worse_decisions",
        )
        for dimensions, problem in ((2, _CASES_2D), (3, _CASES_3D))
    ),
)

OVERVIEW = (
    OverviewRow(
        "DTensor",
        problem=_MLP,
        today="upstream",
        ours="interned",
        place=20,
        published="after",
        best="exact-miss",
        counter="strategies_expanded",
        rated_on=_CASES_2D,
    ),
)
