"""What is measured of the family in reports, and what it is to reach."""

from harness.contract import Goal, Study

LADDER = ("before", "after", "no-pytree", "upstream")

_HOST = "dgx_a100_80gb:8"
_HOSTS = "dgx_a100_80gb:16"
_ORDINARY = f"ops[op=addmm+mm+mul+relu+view+t]/{_HOST}"
_SCALAR = f"ops[op=add-scalar]/{_HOST}"
_SHARDED_VIEW = f"ops[op=view-sharded]/{_HOST}"
_MLP = "mlp/dgx_h100:8"
_MISS_3D = f"miss[dims=3,op=addmm+mm+mul+relu]/{_HOSTS}"
_MISS_4D = f"miss[dims=4,op=addmm+mm+mul+relu]/{_HOSTS}"
_DYNAMIC = f"dynamic/{_HOSTS}"
_DYNAMIC_2D = f"dynamic[dims=2]/{_HOSTS}"

_HIT = ("upstream", "interned")
_MISS = ("upstream", "dijkstra", "exact-miss")
_SIZES = ("upstream", "interned", "shape-class")


def _against_upstream(
    problem: str, variants: tuple[str, ...], purpose: str, large: bool = False
) -> Study:
    return Study(problem, variants, purpose, against="upstream", large=large)


STUDIES = (
    Study(f"ops[op=addmm]/{_HOST}", LADDER, "published ladder"),
    Study(f"mlp/{_HOST}", (*LADDER, "interned"), "published ladder"),
    Study(f"ops/{_HOST}", (*LADDER, "uncached", "interned"), "published ladder", large=True),
    _against_upstream(_ORDINARY, _HIT, "a hit"),
    _against_upstream(_SCALAR, _HIT, "a hit"),
    _against_upstream(_SHARDED_VIEW, _HIT, "a hit"),
    _against_upstream(_MLP, _HIT, "a hit"),
    _against_upstream(f"transformer-block/{_HOST}", _HIT, "a hit", large=True),
    *(
        _against_upstream(f"optimizer[impl={each}]/{_HOST}", _HIT, "a hit", large=True)
        for each in ("single", "foreach", "fused")
    ),
    _against_upstream(f"miss/{_HOSTS}", _MISS, "a miss", large=True),
    _against_upstream(f"miss[dims=2]/{_HOSTS}", _MISS, "a miss", large=True),
    _against_upstream(_MISS_3D, _MISS, "a miss"),
    _against_upstream(_MISS_4D, _MISS, "a miss", large=True),
    _against_upstream(f"miss[dims=2,cases=40]/{_HOSTS}", _MISS, "decisions on a miss"),
    _against_upstream(f"miss[dims=3,cases=30]/{_HOSTS}", _MISS, "decisions on a miss", large=True),
    _against_upstream(_DYNAMIC, ("upstream", "shape-class"), "new sizes"),
    _against_upstream(_DYNAMIC_2D, _SIZES, "new sizes", large=True),
)


def _times_faster(text: str, problem: str, variant: str, limit: float) -> Goal:
    return Goal(text, problem, variant, "times faster", limit, against="upstream")


def _never_worse(problem: str, where: str) -> Goal:
    return Goal(
        f"no decision worse than the exhaustive search's {where}",
        problem,
        "exact-miss",
        "quality",
        limit=0,
        quality="worse_decisions",
    )


GOALS = (
    _times_faster("ordinary ops at least 1.2 times as fast", _ORDINARY, "interned", 1.2),
    _times_faster("x + 1.0 at least twice as fast", _SCALAR, "interned", 2),
    _times_faster("a sharded view at least twice as fast", _SHARDED_VIEW, "interned", 2),
    _times_faster("an MLP at least 1.15 times as fast", _MLP, "interned", 1.15),
    _times_faster("a miss in 3 dimensions at least 80 times as fast", _MISS_3D, "exact-miss", 80),
    _times_faster("a miss in 4 dimensions at least 500 times as fast", _MISS_4D, "exact-miss", 500),
    _never_worse(f"miss[dims=2,cases=40]/{_HOSTS}", "in 2 dimensions"),
    _never_worse(f"miss[dims=3,cases=30]/{_HOSTS}", "in 3 dimensions"),
    _times_faster("new sizes at least 40 times as fast", _DYNAMIC, "shape-class", 40),
    _times_faster(
        "new sizes in 2 dimensions at least 100 times as fast", _DYNAMIC_2D, "shape-class", 100
    ),
)
