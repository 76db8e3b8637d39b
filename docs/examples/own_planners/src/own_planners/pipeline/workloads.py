"""The chains of layers: a published model, a generated one, a user's file."""

import random
from typing import Annotated

from msgspec import Meta, Struct

from harness.contract import (
    Column,
    Inventory,
    Parameters,
    Seed,
    Topology,
    Workload,
    WorkloadSpec,
    checked,
    read_file,
    read_json,
    read_parameters,
    unknown,
)

_GPT3 = Workload(
    "gpt3-175b",
    "GPT-3: 96 transformer layers of width 12,288, then logits over 51,200 tokens; sequences of "
    "2,048 tokens",
    "shape: arXiv 2005.14165, table 2.1; FLOP of a layer and of the logits: arXiv 2104.04473, "
    "appendix",
)
_UNEVEN = Workload(
    "uneven",
    "layers=100 layers, each of 1 to 1,000 GFLOP, made up with seed=0",
    "random.Random(seed).randint(1, 1000), once for each layer",
)
_MOST_LAYERS = 10_000
_MOST_FLOP = 10**18
_GIGA = 10**9


class ChainFile(Struct, frozen=True):
    """A user's file: the FLOP of each layer."""

    flop: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=_MOST_FLOP)], ...],
        Meta(min_length=1, max_length=_MOST_LAYERS),
    ]


class UnevenParameters(Parameters, frozen=True):
    """The number of layers, and the seed of their costs."""

    layers: Annotated[int, Meta(ge=1, le=_MOST_LAYERS)] = 100
    seed: Seed = 0


_PARAMETERS = {_GPT3.name: Parameters, _UNEVEN.name: UnevenParameters}


def list_workloads() -> tuple[Workload, ...]:
    """Return the named workloads; a user's file is a workload too, named by its path."""
    return _GPT3, _UNEVEN


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return what results call a workload: a file by its name and a hash of its content."""
    layer_costs(spec)  # what is wrong with it is better said before a process is started
    return spec.of_file(read_file(spec.name)) if _is_file(spec) else spec


def inventory(spec: WorkloadSpec, _: Topology | None) -> Inventory:
    """Return what each layer costs; a chain is the same on all machines."""
    costs = layer_costs(spec)
    return Inventory(
        title=f"Layers of {spec}",
        part="layer",
        columns=(
            Column("layer", kind="count"),
            Column("cost", unit="TFLOP", kind="number", scale="linear"),
        ),
        rows=tuple((layer, cost / 10**12) for layer, cost in enumerate(costs)),
        summary=f"{len(costs):,} layers, {sum(costs) / 10**12:,.4g} TFLOP",
        sort="cost",
    )


def layer_costs(spec: WorkloadSpec) -> tuple[int, ...]:
    """Return what each layer costs, in FLOP of one sequence forward.

    Raises:
        UsageError: there is no such workload, or the file cannot be used.
    """
    if _is_file(spec):
        read_parameters(spec, Parameters)
        return checked(read_json(spec.name), ChainFile, spec.name).flop
    if spec.name not in _PARAMETERS:
        raise unknown("workload of family 'pipeline',", spec.name, [*_PARAMETERS, "FILE.json"])
    asked = read_parameters(spec, _PARAMETERS[spec.name])
    if not isinstance(asked, UnevenParameters):
        return transformer(layers=96, width=12_288, tokens=2_048, vocabulary=51_200)
    draw = random.Random(asked.seed)
    return tuple(draw.randint(1, 1000) * _GIGA for _ in range(asked.layers))


def transformer(layers: int, width: int, tokens: int, vocabulary: int) -> tuple[int, ...]:
    """Return FLOP of each layer and of the logits: 24sh² + 4s²h and 2shV (arXiv 2104.04473)."""
    layer = 24 * tokens * width**2 + 4 * tokens**2 * width
    return (layer,) * layers + (2 * tokens * width * vocabulary,)


def _is_file(spec: WorkloadSpec) -> bool:
    return spec.name.endswith(".json")
