"""Plan a small model with AutoParallel, in a child process that has it on the import path.

`harness.contract.ask_upstream` sends the requests.
"""

import math
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest.mock import patch

import pulp
import torch
from autoparallel.api import AutoParallel
from autoparallel.cost_models import compute_estimation
from autoparallel.optimize_sharding import ShardingOptimizer
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.contract import Names
from planners.instruments import timed
from planners.placement.drop_in.accelerate import accelerate_autoparallel, capturing
from planners.placement.upstream.models import Block

_H100 = next(gpu for gpu in compute_estimation.DEVICE_LIMITS if "H100" in gpu.name)


def _plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return the objective and the placements, and the seconds of construction and solving."""
    shape = tuple(request["mesh"])
    if not torch.distributed.is_initialized():
        size = math.prod(shape)
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    with ExitStack() as stack:
        # A mesh of CPUs needs no GPU here; its costs are those of H100s.
        stack.enter_context(patch.object(compute_estimation, "_get_device_limit", lambda: _H100))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[: len(shape)])
        with torch.device("meta"):
            model = nn.Sequential(*(Block(request["width"]) for _ in range(request["blocks"])))

        def inputs() -> torch.Tensor:
            size = (8 * math.prod(shape), 64, request["width"])
            return torch.randn(*size, requires_grad=True)

        if request["later"]:
            stack.enter_context(patch.object(ShardingOptimizer, "_set_objective", _later_objective))
        ours = stack.enter_context(
            accelerate_autoparallel() if request["accelerated"] else nullcontext()
        )
        parallel = stack.enter_context(AutoParallel(model, inputs, mesh, cost_model=None))
        placement = (Shard(0), *[Replicate()] * (len(shape) - 1))
        parallel.add_input_constraints([placement])
        parallel.add_output_constraints([placement])
        if request["memory"]:
            parallel.add_parameter_memory_constraint(low=None, high=request["memory"])
        with capturing(Names()) as content:
            placements, measured = timed(parallel.optimize_placement)
            captured = content()
        return {
            "objective": pulp.value(parallel.sharding_optimizer.prob.objective),
            "ops": len(placements),
            "captured": captured,
            "solved": getattr(ours, "solved", 0),
            "by_upstream": dict(getattr(ours, "by_upstream", {})),
            **measured,
        }


def _later_objective(optimizer: Any) -> None:
    """Set an objective that counts communication twice, as a later AutoParallel might."""
    optimizer.prob += pulp.lpSum(
        (decision.cost + decision.comm_cost) * decision.var
        for decision in optimizer.decision_vars.values()
        if math.isfinite(decision.comm_cost)
    )


HANDLERS = {"plan": _plan}
