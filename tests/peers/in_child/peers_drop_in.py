"""Replaces an upstream library by a drop-in, for everything that a process imports afterwards."""

import functools
import inspect
import sys
import tempfile
from collections.abc import Callable, Hashable
from typing import Any

Reached = Callable[[], Hashable]


def put_in_place(drop_in: str) -> Reached:
    """Replace the upstream library by a drop-in, for the rest of the process.

    Args:
        drop_in: `colossalai`, `dtensor`, or a mode of `Planner`, perhaps followed by `+cache`.

    Returns:
        A function that returns a new value after every use of the drop-in.
    """
    if drop_in == "dtensor":
        from planners.dtensor.accelerate import accelerate

        steps, info = _accelerate_optimizers(), _accelerated(accelerate).cache_info
        return lambda: (info(), *steps)
    if drop_in == "colossalai":
        from planners.dimspec.upstream.accelerate import accelerate

        accelerated = _accelerated(accelerate)
        return lambda: (accelerated.searches, accelerated.left_to_upstream)
    return _put_planner_in_place(drop_in)


def _accelerated(accelerate: Callable[..., Any]) -> Any:
    return accelerate(**_insisting(accelerate))


def _accelerate_optimizers() -> list[str]:
    """Accelerate all optimizers that are made; return a list that grows with each local step."""
    from torch.optim import Optimizer

    from planners.dtensor.optimizer import local_rule
    from planners.dtensor.optimizer.accelerate import accelerate_optimizer

    steps: list[str] = []
    make, run = Optimizer.__init__, local_rule._run

    @functools.wraps(make)
    def make_accelerated(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if "_init_group" not in vars(self):
            accelerate_optimizer(self, any_release=True)

    def counted_run(*args: Any) -> bool:
        steps.append("step")
        return run(*args)

    Optimizer.__init__ = make_accelerated
    local_rule._run = counted_run
    return steps


def _insisting(function: Callable[..., Any]) -> dict[str, bool]:
    """Return the argument that makes a drop-in accept releases with which it was not tested."""
    name = "any_release"
    return {name: True} if name in inspect.signature(function).parameters else {}


def _put_planner_in_place(mode: str) -> Reached:
    from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

    from planners.embedding.drop_in.planner import Planner

    # Upstream's tests look at signatures and subclass it, so that it stays the class it is; tests
    # give no mode, and so get this one.
    mode, _, cached = mode.partition("+")
    Planner.__init__.__kwdefaults__.update(mode=mode, **_insisting(Planner))
    if cached:
        from planners.embedding.plan_cache.cache import PlanCache

        Planner.__init__.__kwdefaults__["cache"] = PlanCache(tempfile.mkdtemp())
    calls = 0
    plan = Planner.plan

    @functools.wraps(plan)
    def counted_plan(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return plan(*args, **kwargs)

    Planner.plan = counted_plan
    for name, module in list(sys.modules.items()):
        if name.startswith("torchrec.") and (
            vars(module).get("EmbeddingShardingPlanner") is EmbeddingShardingPlanner
        ):
            module.EmbeddingShardingPlanner = Planner
    return lambda: calls
