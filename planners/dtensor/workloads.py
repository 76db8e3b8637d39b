"""The workloads of the dtensor family: what a program does with distributed tensors, and where."""

from collections.abc import Mapping
from pathlib import Path

from harness.contract import Topology, UsageError, Workload, WorkloadSpec
from harness.contract.captured_file import is_captured_file
from harness.model.files import read_file
from harness.model.ids import at_most, one_of, positive_int, whole_number
from harness.model.topology import captured_topology
from planners.dtensor.capture.step_file import read_step

OPS = ("addmm", "mm", "mul", "relu", "add-scalar", "view", "view-sharded", "t")
"""The single ops; `view` is of a replicated tensor, `view-sharded` keeps the sharded dimension."""

CACHES = ("warm", "cold")
"""Whether the calls of a captured step find their decisions remembered."""

OPTIMIZERS = ("single", "foreach", "fused")
"""The implementations of torch's AdamW; `single` is its for-loop."""

MOST_GPUS = 256
MOST_DIMS = 4
MOST_PARAMETERS = 10_000
MOST_CASES = 10_000
ROUNDS = 20
"""How many times a call of `ops` repeats its ops, so that what is around them weighs little."""

_SOURCE = "the benchmark of pytorch/pytorch#107305, widened"

WORKLOADS = (
    Workload(
        "ops",
        f"{', '.join(OPS)}, {ROUNDS} times each on the same shapes; op=mm+t for some of them, "
        "dims=1 to 4 for a mesh of more dimensions",
        _SOURCE,
    ),
    Workload(
        "mlp",
        "forward and backward of a tensor-parallel MLP, 16 features to 8 a rank to 16",
        _SOURCE,
    ),
    Workload(
        "transformer-block",
        "forward and backward of a tensor- and sequence-parallel transformer block",
        "torch's tensor-parallel plan (PrepareModuleInput, SequenceParallel)",
    ),
    Workload(
        "miss",
        "the ops, each for the first time: every cache is cold; op, dims as for ops; cases=N for N "
        "matrix and pointwise ops with placements drawn at random from seed=0",
        "pytorch/pytorch#169438",
    ),
    Workload(
        "dynamic",
        "relu(x @ w1) @ w2 with a batch size that was not seen before in every step; dims=1 to 4",
        "pytorch/pytorch#150582",
    ),
    Workload(
        "optimizer",
        f"one AdamW step over params=20 parameters; impl={', '.join(OPTIMIZERS)} (foreach)",
        "pytorch/pytorch#109101",
    ),
)

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "ops": ("op", "dims"),
    "mlp": (),
    "transformer-block": (),
    "miss": ("op", "dims", "cases", "seed"),
    "dynamic": ("dims",),
    "optimizer": ("impl", "params", "dims"),
}
_OF_FILE = ("calls", "caches")


def list_workloads() -> tuple[Workload, ...]:
    """Return the named workloads; a file that `shardbench.capture` wrote is a workload too."""
    return WORKLOADS


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload as results name it: a file by its base name and a hash of its content.

    Raises:
        UsageError: it or a parameter is unknown, or the file cannot be read.
    """
    checked(spec)
    return spec.of_file(read_file(spec.name)) if is_captured_file(spec.name) else spec


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the ranks of a captured step, in hosts as torch counted them; None for others.

    Raises:
        UsageError: the file cannot be read.
    """
    if not is_captured_file(spec.name):
        return None
    step = read_step(Path(spec.name))
    return captured_topology(step.ranks, step.ranks_per_host)


def checked(spec: WorkloadSpec) -> WorkloadSpec:
    """Return a workload as it is; raises UsageError where it or a parameter is unknown."""
    if is_captured_file(spec.name):
        spec.check_parameters(_OF_FILE)
    else:
        spec.check_known("dtensor", {**_PARAMETERS, "FILE.json.gz": _OF_FILE})
    calls(spec)
    is_cold(spec)
    ops(spec)
    dims(spec)
    implementation(spec)
    parameters(spec)
    random_cases(spec)
    if "cases" in spec.parameters and "op" in spec.parameters:
        raise UsageError(f"Parameters 'op' and 'cases' of workload '{spec}' exclude each other.")
    if "seed" in spec.parameters and "cases" not in spec.parameters:
        raise UsageError(
            f"Parameter 'seed' of workload '{spec}' must come with 'cases', how many to draw."
        )
    return spec


def ops(spec: WorkloadSpec) -> tuple[str, ...]:
    """Return the single ops that a workload runs, all unless it names some."""
    return spec.get("op", _named_ops, OPS, f"some of {', '.join(OPS)}, joined by +")


def _named_ops(text: str) -> tuple[str, ...]:
    return tuple(map(one_of(OPS), text.split("+")))


def dims(spec: WorkloadSpec) -> int:
    """Return how many dimensions its mesh has."""
    return spec.get("dims", at_most(MOST_DIMS), 1, f"a whole number from 1 to {MOST_DIMS}")


def implementation(spec: WorkloadSpec) -> str:
    """Return which implementation of AdamW it runs."""
    return spec.get("impl", one_of(OPTIMIZERS), "foreach", f"one of {', '.join(OPTIMIZERS)}")


def parameters(spec: WorkloadSpec) -> int:
    """Return how many parameters its optimizer has."""
    allowed = f"a whole number from 1 to {MOST_PARAMETERS:,}"
    return spec.get("params", at_most(MOST_PARAMETERS), 20, allowed)


def random_cases(spec: WorkloadSpec) -> tuple[int, int]:
    """Return how many cases it draws, 0 where it runs the named ops, and the seed."""
    count = spec.get("cases", at_most(MOST_CASES), 0, f"a whole number from 1 to {MOST_CASES:,}")
    return count, spec.get("seed", whole_number, 0, "a whole number of at least 0")


def calls(spec: WorkloadSpec) -> int | None:
    """Return how many calls of a captured step are made, None for all."""
    return spec.get("calls", positive_int, None, "a whole number of at least 1")


def is_cold(spec: WorkloadSpec) -> bool:
    """Return whether a captured step is to be called with cold caches."""
    return spec.get("caches", one_of(CACHES), "warm", f"one of {', '.join(CACHES)}") == "cold"


def mesh_shape(topology: Topology, ndim: int) -> tuple[int, ...]:
    """Return the mesh of a topology's GPUs in `ndim` dimensions.

    Raises:
        UsageError: there are too many GPUs, or too few for so many dimensions.
    """
    check_ranks(topology)
    return topology.mesh_shape(ndim)


def check_ranks(topology: Topology) -> None:
    """Raise UsageError where a topology has more GPUs than can be played."""
    if topology.gpus > MOST_GPUS:
        raise UsageError(
            f"The dtensor family runs up to {MOST_GPUS} ranks in one process, not {topology.gpus}."
        )
