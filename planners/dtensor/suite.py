"""The family's part of reports, and the goals of its variants."""

from harness.contract import Goal, OverviewRow, Study

LADDER = ("before", "after", "no-pytree", "upstream")

_HOST = "dgx_a100_80gb:8"
_HOSTS = "dgx_a100_80gb:16"
_ORDINARY = f"ops[op=addmm+mm+mul+relu+view+t]/{_HOST}"
_SCALAR = f"ops[op=add-scalar]/{_HOST}"
_SHARDED_VIEW = f"ops[op=view-sharded]/{_HOST}"
_MLP = "mlp/dgx_h100:8"
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
            (f"transformer-block/{_HOST}", _HIT, "a hit", True),
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

_NEVER_WORSE = "no decision worse than the exhaustive search's in {} dimensions"

GOALS = tuple(
    Goal(text, problem, variant, "times faster", limit, against="upstream")
    if limit
    else Goal(text, problem, variant, "quality", limit=0, quality="worse_decisions")
    for text, problem, variant, limit in (
        ("ordinary ops at least 1.2 times as fast", _ORDINARY, "interned", 1.2),
        ("x + 1.0 at least twice as fast", _SCALAR, "interned", 2),
        ("a sharded view at least twice as fast", _SHARDED_VIEW, "interned", 2),
        ("an MLP at least 1.15 times as fast", _MLP, "interned", 1.15),
        ("an optimizer step, a for-loop, at least 2.5 times as fast", _SINGLE, "interned", 2.5),
        ("an optimizer step, foreach, at least twice as fast", _FOREACH, "interned", 2),
        ("an optimizer step, fused, at least twice as fast", _FUSED, "interned", 2),
        ("a miss in 3 dimensions at least 80 times as fast", _MISS_3D, "exact-miss", 80),
        ("a miss in 4 dimensions at least 500 times as fast", _MISS_4D, "exact-miss", 500),
        (_NEVER_WORSE.format(2), _CASES_2D, "exact-miss", 0),
        (_NEVER_WORSE.format(3), _CASES_3D, "exact-miss", 0),
        ("new sizes at least 40 times as fast", _DYNAMIC, "shape-class", 40),
        ("new sizes in 2 dimensions at least 100 times as fast", _DYNAMIC_2D, "shape-class", 100),
    )
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
