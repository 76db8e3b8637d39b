"""Declare the dimspec family: its qualities, counters, phases and abilities."""

from harness.contract import Abilities, Counter, Family, Quality
from planners.dimspec.capture import capturing
from planners.dimspec.problem import Answers, StreamProblem
from planners.dimspec.series.declared import SERIES
from planners.dimspec.suite import STATEMENTS, STUDIES
from planners.dimspec.workloads import WORKLOADS, brings, label

FAMILY: Family[StreamProblem, Answers] = Family(
    name="dimspec",
    summary="conversions of a tensor from one sharding to another: ColossalAI's",
    implementation="planners.dimspec.implementation",
    label=label,
    brings=brings,
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
    studies=STUDIES,
    statements=STATEMENTS,
    place=30,
    abilities=Abilities(
        capture=capturing, inventory="planners.dimspec.inventory:inventory", series=SERIES
    ),
)
