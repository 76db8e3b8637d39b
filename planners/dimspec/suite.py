"""The dimspec family's studies for reports, and its headline, claim and goals."""

from harness.contract import Pair, Statement, Study

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

_GOALS = tuple(
    Statement(
        "goal", f"{what} at least {least} times as fast", problem, before, after, at_least=least
    )
    for what, problem, before, after, least in (
        ("all pairs of a tensor", _PAIRS, "lazy-dict", "interned", 50),
        ("all pairs of eight", _BATCH, "lazy-dict", "interned", 120),
        ("the stream of ResNet-50", _RESNET50, "lazy-dict", "interned", 30),
        ("ColossalAI's constructor on ResNet-50", _CONSTRUCTOR, *REAL[1:], 8),
    )
)

STATEMENTS = (
    Statement(
        "headline",
        "ColossalAI",
        _CONSTRUCTOR,
        *REAL[1:],
        quick=Pair(_PAIRS, "lazy-dict", "interned"),
        claim="ColossalAI #5446",
        counter="dictionaries_built",
        counted=(
            Pair(_CONSTRUCTOR, "colossalai-0.4.1", ""),
            Pair(_BEGINNING, "lazy-dict", "interned"),
        ),
        before_is="ColossalAI 0.4.1; for all pairs, its search rewritten here",
        next_step="`shardbench.accelerate_colossalai()` before its solver",
    ),
    Statement("headline", "ColossalAI", _BEGINNING, "lazy-dict", "optimal", "cost_millions"),
    Statement(
        "claim",
        "ColossalAI #5446",
        _CONSTRUCTOR,
        *REAL[:2],
        quick=Pair(_BEGINNING, "eager-dict", "lazy-dict"),
        counter="dictionaries_built",
    ),
    *_GOALS,
)
