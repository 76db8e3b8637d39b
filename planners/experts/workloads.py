"""The workloads of the experts family: models with generated loads, and files of recorded loads.

Reading captured rebalancings needs neither NumPy nor torch.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from harness.contract import (
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    captured_topology,
    checked,
    is_captured_file,
    read_captured,
    read_json,
    read_parameters,
    unknown,
)

SUFFIXES = (".json", ".json.gz", ".csv", ".pt")
_MIB = 2**20


class Model(NamedTuple):
    """The MoE layers of a model, experts of a layer, bytes of an expert, and the source."""

    layers: int
    experts: int
    expert_bytes: int
    source: str


MODELS: Mapping[str, Model] = {
    "deepseek-v2-lite": Model(
        26, 64, 3 * 2048 * 1408 * 2, "arXiv 2405.04434; 3 matrices of 2048 x 1408 in bf16"
    ),
    "deepseek-v3": Model(58, 256, 42 * _MIB, "arXiv 2412.19437; 3 matrices of 7168 x 2048 in fp8"),
    "kimi-k2": Model(60, 384, 42 * _MIB, "arXiv 2507.20534; 3 matrices of 7168 x 2048 in fp8"),
    "qwen3-235b": Model(94, 128, 36 * _MIB, "arXiv 2505.09388; 3 matrices of 4096 x 1536 in bf16"),
    "gpt-oss-120b": Model(
        36, 128, 3 * 2880 * 2880 * 17 // 32, "arXiv 2508.10925; 3 matrices of 2880 x 2880 in mxfp4"
    ),
}

WORKLOADS = (
    *(
        Workload(
            name,
            f"{model.layers} layers of {model.experts} experts with lognormal loads: skew=0.7, "
            "drift=0.1 from window to window, windows=2, seed=0; redundant=0 spare slots (0: about "
            "an eighth), groups=1 that share a node, budget=0 fetches in a layer (0: no limit)",
            model.source,
        )
        for name, model in MODELS.items()
    ),
    Workload(
        "FILE.json, FILE.csv or FILE.pt",
        "captured rebalancings, or loads of layers x experts, or of windows x layers x experts",
        "accelerate_experts(capture=FILE); SGLang's expert distribution recorder "
        "('logical_count'); CSV with a line for each layer",
    ),
)


class PlacementParameters(Parameters, frozen=True):
    """Parameters of every workload: spare slots, groups, and a limit on fetches."""

    redundant: Annotated[int, Meta(ge=0, le=100_000)] = 0
    groups: Annotated[int, Meta(ge=1, le=64)] = 1
    budget: Annotated[int, Meta(ge=0, le=100_000)] = 0


class ModelParameters(PlacementParameters, frozen=True):
    """Parameters of generated loads: their spread, and their changes from window to window."""

    layers: Annotated[int, Meta(ge=0, le=256)] = 0
    skew: Annotated[float, Meta(gt=0, le=3)] = 0.7
    drift: Annotated[float, Meta(gt=0, le=3)] = 0.1
    windows: Annotated[int, Meta(ge=1, le=64)] = 2
    seed: Seed = 0


def parameters_of(spec: WorkloadSpec) -> PlacementParameters:
    """Return a workload's parameters; raises UsageError if the name or a parameter is unknown."""
    if is_file(spec):
        return read_parameters(spec, PlacementParameters)
    if spec.name not in MODELS:
        raise unknown("workload of family 'experts',", spec.name, [*MODELS, "FILE.json"])
    return read_parameters(spec, ModelParameters)


def is_file(spec: WorkloadSpec) -> bool:
    """Return whether a workload is a file of recorded loads."""
    return spec.name.endswith(SUFFIXES)


SIZES = ("gpus", "slots", "groups", "nodes")

_Amount = Annotated[float, Meta(ge=0, le=2**53)]
_Size = Annotated[int, Meta(ge=1, le=2**20)]
_Expert = Annotated[int, Meta(ge=0, lt=2**20)]


class StepRecord(Struct, frozen=True):
    """One rebalancing: loads by layer and expert, and the expert in each slot before it, if any."""

    loads: list[list[_Amount]]
    placement: list[list[_Expert]] | None = None


class Captured(Struct, frozen=True, kw_only=True):
    """Rebalancings of an engine, oldest first, all with the same sizes."""

    engine: str
    gpus: _Size
    slots: _Size
    groups: _Size
    nodes: _Size
    steps: Annotated[list[StepRecord], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.slots % self.gpus or self.gpus % self.nodes or self.groups % self.nodes:
            raise ValueError("'slots' must divide into 'gpus', 'gpus' and 'groups' into 'nodes'")


def captured(path: str) -> Captured | None:
    """Return a captured file's content, None for other files; raises UsageError for wrong ones."""
    if not is_captured_file(path) or "shardbench" not in read_json(path):
        return None
    return checked(read_captured(path, "experts"), Captured, path)


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the GPUs of a captured file, None for other workloads."""
    record = captured(spec.name)
    return captured_topology(record.gpus, record.gpus // record.nodes) if record else None


def sizes(
    spec: WorkloadSpec,
    asked: PlacementParameters,
    experts: int,
    topology: Topology,
    record: Captured | None = None,
) -> tuple[int, int]:
    """Return the numbers of nodes and of slots per GPU; raises UsageError if they do not fit."""
    gpus = topology.gpus
    if record:
        if experts % record.groups or experts > record.slots:
            raise UsageError(f"{spec.name} must have slots for all experts, in equal groups.")
        return record.nodes, record.slots // gpus
    slots = experts + asked.redundant if asked.redundant else experts + -(-experts // 8)
    per_gpu = -(-slots // gpus)
    if asked.redundant and slots % gpus:
        raise UsageError(
            f"Parameter 'redundant' of workload '{spec}' makes {slots} slots, which are no "
            f"multiple of {gpus} GPUs; {per_gpu * gpus - experts} would be."
        )
    nodes = max(1, gpus // topology.gpus_per_host)
    if asked.groups == 1:
        return 1, per_gpu
    if experts % asked.groups or asked.groups % nodes:
        raise UsageError(
            f"Parameter 'groups' of workload '{spec}' must divide {experts} experts and be a "
            f"multiple of {nodes} nodes, not {asked.groups}."
        )
    return nodes, per_gpu
