"""The studies and goals of the dimspec family, and its row in the README's figure."""

from harness.contract import Goal, OverviewRow, Study

PUBLISHED = ("eager-dict", "lazy-dict")
LADDER = (*PUBLISHED, "shared-dict", "path-cache", "interned")
REAL = ("colossalai-0.4.0", "colossalai-0.4.1", "colossalai-0.4.1+interned")
ALL = (*LADDER, "optimal", *REAL)

_FOUR = "dgx_a100_80gb:4"
_EIGHT = "dgx_a100_80gb:8"
_BEGINNING = f"resnet50[calls=300]/{_FOUR}"
_RESNET50 = f"resnet50/{_FOUR}"
_GPT12 = f"gpt12/{_FOUR}"
_PAIRS = f"all-pairs[rank=4,mesh=2x4]/{_EIGHT}"
_BATCH = f"all-pairs-batch/{_EIGHT}"
_RANDOM = f"random[conversions=2000]/{_EIGHT}"
_CONSTRUCTOR = f"constructor[model=resnet50]/{_FOUR}"
_THREE_DIMS = f"all-pairs[rank=3,mesh=2x2x2]/{_EIGHT}"


def _against_lazy(problem: str, purpose: str, large: bool = False) -> Study:
    return Study(problem, ("lazy-dict", "interned"), purpose, against="lazy-dict", large=large)


STUDIES = (
    Study(_BEGINNING, ALL, "published ladder"),
    _against_lazy(_PAIRS, "all pairs"),
    _against_lazy(_BATCH, "all pairs", large=True),
    Study(_THREE_DIMS, ("interned", "optimal"), "three dimensions", against="interned"),
    _against_lazy(_RESNET50, "a whole model", large=True),
    _against_lazy(_GPT12, "a whole model", large=True),
    Study(_CONSTRUCTOR, REAL, "the real constructor", against="colossalai-0.4.1", large=True),
    Study(_RANDOM, LADDER, "random conversions", large=True),
)


GOALS = (
    *(
        Goal.times_faster(what, problem, "interned", limit, against="lazy-dict")
        for what, problem, limit in (
            ("all pairs of a tensor", _PAIRS, 50),
            ("all pairs of eight", _BATCH, 120),
            ("the stream of ResNet-50", _RESNET50, 30),
        )
    ),
    Goal.times_faster(
        "ColossalAI's constructor on ResNet-50",
        _CONSTRUCTOR,
        "colossalai-0.4.1+interned",
        8,
        against="colossalai-0.4.1",
    ),
)

OVERVIEW = (
    OverviewRow(
        "ColossalAI",
        problem=_PAIRS,
        today="lazy-dict",
        ours="interned",
        place=30,
        published="lazy-dict",
        best="optimal",
        counter="dictionaries_built",
        rated_on=_BEGINNING,
        today_is="a stand-in: the search of ColossalAI 0.4.1, rewritten",
        next_step="ColossalAI: call `shardbench.accelerate_colossalai()` before its solver.",
    ),
)
