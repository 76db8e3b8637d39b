"""What `accelerate_autoparallel` gains: python record/scripts/autoparallel.py [FOLDER]

AutoParallel plans two layers of the shape of LLaMA-3-8B (its own model file) on 8 x 8 H100s, by its
own code and accelerated, each in a new process, after `make upstreams`. FOLDER is the upstream's. A
row has the CPU seconds of tracing the model, of the rest of the construction, and of solving with
the solver's process; the numbers of variables and constraints; and the objective.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any
from unittest.mock import patch

import torch
from common import in_new_process, print_table
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

COLUMNS = (
    *("planned by", "tracing", "construction", "solving", "variables", "constraints"),
    "objective",
)
VOCABULARY, SEQUENCE, BATCH = 128_256, 8_192, 16
SHAPE = {"dim": 4096, "n_layers": 2, "n_heads": 32, "n_kv_heads": 8, "ffn_dim_multiplier": 1.3}


def cpu_seconds() -> float:
    """Return the CPU time of this process and its ended children."""
    used = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in used)


def row(folder: str, is_accelerated: bool) -> list[str]:
    """Plan the model in this process."""
    sys.path.insert(0, folder)
    import pulp
    from autoparallel._testing.models.llama3 import Transformer, TransformerModelArgs
    from autoparallel.api import AutoParallel
    from autoparallel.cost_models import compute_estimation

    from planners.placement.drop_in.accelerate import accelerate_autoparallel
    from planners.placement.search.warm_up import warm_up

    warm_up()
    traced = []

    def timed_trace(parallel: Any) -> None:
        began = cpu_seconds()
        trace(parallel)
        traced.append(cpu_seconds() - began)

    def inputs() -> torch.Tensor:
        return torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))

    trace: Callable[[Any], None] = AutoParallel.build_model_graph
    h100 = next(gpu for gpu in compute_estimation.DEVICE_LIMITS if "H100" in gpu.name)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
    mesh = init_device_mesh("cpu", (8, 8), mesh_dim_names=("dp", "tp"))
    shape = TransformerModelArgs(
        **SHAPE, rope_theta=500_000, vocab_size=VOCABULARY, max_seq_len=SEQUENCE
    )
    with torch.device("meta"):
        model = Transformer(shape)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with ExitStack() as stack:
        # A mesh of CPUs needs no GPU here; its costs are those of H100s.
        stack.enter_context(patch.object(compute_estimation, "_get_device_limit", lambda: h100))
        stack.enter_context(patch.object(AutoParallel, "build_model_graph", timed_trace))
        ours = stack.enter_context(accelerate_autoparallel()) if is_accelerated else None
        # 1. Trace and construct.
        parallel = AutoParallel(
            model, inputs, mesh, policy, cost_model=None, repeated_subgraphs=True
        )
        began = cpu_seconds()
        stack.enter_context(parallel)
        constructed = cpu_seconds() - began - traced[0]
        # 2. Constrain and solve.
        parallel.add_parameter_memory_constraint(low=None, high=None)
        parallel.add_input_constraints([(Shard(0), Replicate())])
        parallel.add_output_constraints([(Shard(0), Shard(2))])
        began = cpu_seconds()
        parallel.optimize_placement()
        solved = cpu_seconds() - began
        if ours and not ours.solved:
            raise SystemExit(f"AutoParallel solved by itself: {dict(ours.by_upstream)}")
        optimizer = parallel.sharding_optimizer
        return [
            "ours" if ours else "AutoParallel",
            *(f"{seconds:.1f} s" for seconds in (traced[0], constructed, solved)),
            f"{len(optimizer.decision_vars):,}",
            f"{len(optimizer.prob.constraints):,}",
            f"{pulp.value(optimizer.prob.objective):,.2f}",
        ]


def main() -> None:
    """Plan by both, one after the other."""
    folder = sys.argv[1] if len(sys.argv) > 1 else "upstreams/autoparallel-a54c252"
    print_table(COLUMNS, [in_new_process(row, folder, way) for way in (False, True)])


if __name__ == "__main__":
    main()
