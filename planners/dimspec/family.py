"""Declare the dimspec family: its qualities, counters, studies, headline, claim and goals."""

from harness.contract import Abilities, Counter, Family, Pair, Quality, Statement, Study
from planners.dimspec.problem import Answers, Stream
from planners.dimspec.workloads import WORKLOADS, label

_LADDER = ("eager-dict", "lazy-dict", "shared-dict", "path-cache", "interned")
_REAL = ("colossalai-0.4.0", "colossalai-0.4.1", "colossalai-0.4.1+interned")

_BEGINNING = "resnet50[calls=300]/dgx_a100_80gb:4"
_PAIRS = "all-pairs[rank=4,mesh=2x4]/dgx_a100_80gb:8"
_BATCH = "all-pairs-batch/dgx_a100_80gb:8"
_RESNET50 = "resnet50/dgx_a100_80gb:4"
_GPT12 = "gpt12/dgx_a100_80gb:4"
_CONSTRUCTOR = "constructor[model=resnet50]/dgx_a100_80gb:4"
_THREE_AXES = "all-pairs[rank=3,mesh=2x2x2]/dgx_a100_80gb:8"
_RANDOM = "random[conversions=2000]/dgx_a100_80gb:8"


def _against_lazy(problem: str, purpose: str, large: bool = True) -> Study:
    return Study(problem, ("lazy-dict", "interned"), purpose, against="lazy-dict", large=large)


_STUDIES = (
    Study(_BEGINNING, (*_LADDER, "optimal", *_REAL), "published ladder"),
    _against_lazy(_PAIRS, "all pairs", large=False),
    _against_lazy(_BATCH, "all pairs"),
    Study(_THREE_AXES, ("interned", "optimal"), "three dimensions", against="interned"),
    _against_lazy(_RESNET50, "a whole model"),
    _against_lazy(_GPT12, "a whole model"),
    Study(_CONSTRUCTOR, _REAL, "the real constructor", against="colossalai-0.4.1", large=True),
    Study(_RANDOM, _LADDER, "random conversions", large=True),
)


def _goal(what: str, least: int, problem: str, before: str, after: str) -> Statement:
    text = f"{what} at least {least} times as fast"
    return Statement("goal", text, problem, before, after, at_least=least)


_STATEMENTS = (
    Statement(
        "headline",
        "ColossalAI",
        _CONSTRUCTOR,
        *_REAL[1:],
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
        *_REAL[:2],
        quick=Pair(_BEGINNING, "eager-dict", "lazy-dict"),
        counter="dictionaries_built",
    ),
    _goal("all pairs of a tensor", 50, _PAIRS, "lazy-dict", "interned"),
    _goal("all pairs of eight", 120, _BATCH, "lazy-dict", "interned"),
    _goal("the stream of ResNet-50", 30, _RESNET50, "lazy-dict", "interned"),
    _goal("ColossalAI's constructor on ResNet-50", 8, _CONSTRUCTOR, *_REAL[1:]),
)

FAMILY: Family[Stream, Answers] = Family(
    name="dimspec",
    summary="conversions of a tensor from one sharding to another: ColossalAI's",
    implementation="planners.dimspec.implementation",
    label=label,
    qualities=(
        Quality(
            "cost_millions",
            "M",
            "lower",
            "the true cost of the steps of all conversions, in millions of ColossalAI's cost units",
        ),
        Quality(
            "cheapest_millions",
            "M",
            "higher",
            "the least cost of the same conversions, by Dijkstra's algorithm over the same steps",
            bounds="cost_millions",
        ),
        Quality(
            "reported_millions",
            "M",
            "lower",
            "the costs that were reported: ColossalAI counts the first of several steps again",
        ),
        Quality(
            "dearer_conversions", "", "lower", "distinct conversions that are not a cheapest one"
        ),
        Quality(
            "unlike_recorded",
            "",
            "lower",
            "distinct conversions with another path, patterns or cost than recorded",
        ),
    ),
    counters=(
        Counter("dictionaries_built", "dictionaries of differences put together", sufficient=1),
        Counter("dim_specs_built", "objects made for how one dimension is sharded"),
        Counter("sharding_specs_built", "objects made for how a tensor is sharded"),
        Counter("difference_calls", "times that a DimSpec was asked how far another one is"),
        Counter("conversions", "conversions that were asked for"),
        Counter("searches", "conversions that were searched for", sufficient="distinct_searches"),
        Counter("distinct_searches", "different conversions that were asked for"),
        Counter("expansions", "times that all candidates of a step were put together"),
    ),
    phases=("dictionaries", "expansion", "other"),
    workloads=lambda: WORKLOADS,
    benchmarks=("resnet50[calls=1000]/dgx_a100_80gb:4",),
    studies=_STUDIES,
    statements=_STATEMENTS,
    place=30,
    abilities=Abilities(inventory="planners.dimspec.implementation:inventory"),
)
