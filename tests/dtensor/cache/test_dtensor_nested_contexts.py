"""Under `accelerate`, contexts nested at random with ops in between behave as in torch."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from hypothesis import example, given, strategies as st
from outcomes import described, outcome, redistributions_counted
from small_world import counted, mesh_of, placed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import register_op_strategy
from torch.distributed.tensor.debug import CommDebugMode, _clear_sharding_prop_cache
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils.flop_counter import FlopCounterMode
from torch_state import (
    as_they_were,
    handlers,
    is_changed,
    lost,
    negated,
    on_replicated,
    op_strategy_context,
    torch_now,
)

from planners.dtensor.accelerate import accelerate

aten = torch.ops.aten

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("strategies_as_they_were"),
]


class World:
    """A program that enters contexts, leaves contexts and runs ops, one per call of `do`."""

    def __init__(self, mesh: DeviceMesh, accelerates: bool) -> None:
        self.mesh = mesh
        self.accelerates = accelerates
        self.accelerated: accelerate | None = None
        self.open: dict[str, ExitStack] = {}
        self.modes: list[tuple[str, Any]] = []
        self.x = placed(mesh, counted(2, 8), Shard(0))
        self.weight = placed(mesh, counted(8, 4), Replicate())
        self.part = placed(mesh, counted(2, 8), Partial())

    def do(self, act: str) -> Any:
        if act in _OPS:
            with redistributions_counted() as count:
                made = outcome(lambda: described(_OPS[act](self), False))
            return act, made, count[0]
        if act in _MODES:
            self.modes.append((act, _MODES[act]()))
            self.modes[-1][1].__enter__()
        elif act == "leave mode" and self.modes:
            name, mode = self.modes.pop()
            mode.__exit__(None, None, None)
            return (
                {str(op): n for op, n in mode.get_comm_counts().items()}
                if name == "comm"
                else mode.get_total_flops()
            )
        elif act in _CONTEXTS:
            if act in self.open:
                self.open.pop(act).close()
            else:
                self.open[act] = ExitStack()
                self.open[act].enter_context(_CONTEXTS[act]())
        elif act == "accelerate" and self.accelerates:
            if self.accelerated is None:
                self.accelerated = accelerate()
            else:
                self.accelerated.stop()
                self.accelerated = None
        elif act == "clear":
            _clear_sharding_prop_cache()
        elif act == "register":
            register_op_strategy(aten.tanh.default)(on_replicated)
        elif act == "add handler":
            handlers()[aten.sigmoid.default] = negated
        elif act == "drop handler":
            handlers().pop(aten.sigmoid.default, None)
        return act

    def leave(self) -> None:
        while self.modes:
            self.do("leave mode")
        for name in list(self.open):
            self.do(name)
        if self.accelerated is not None:
            self.do("accelerate")


_OPS: dict[str, Callable[[World], Any]] = {
    "tanh": lambda w: torch.tanh(w.x),
    "sigmoid": lambda w: torch.sigmoid(w.x),
    "softmax": lambda w: torch.softmax(w.x, 1),
    "mm": lambda w: w.x @ w.weight,
    "moved": lambda w: w.x @ w.x.t(),
    "sum": lambda w: w.x.sum(0) * 2.0,
    "part": lambda w: torch.relu(w.part),
    "view": lambda w: w.x.view(-1, 2, 4),
    "mixed": lambda w: w.x + torch.ones(8, 8),
    "loss": lambda w: lost(w.mesh),
    "in place": lambda w: w.x.clone().mul_(2),
}
_MODES = {"comm": CommDebugMode, "flops": lambda: FlopCounterMode(display=False)}
_CONTEXTS: dict[str, Callable[[], Any]] = {
    "loss parallel": loss_parallel,
    "implicit": implicit_replication,
    "no grad": torch.no_grad,
    "strategy": lambda: op_strategy_context(
        aten._softmax.default, on_replicated, RuntimeSchemaInfo(1)
    ),
}
ACTS = (
    *_OPS,
    *_MODES,
    *_CONTEXTS,
    *("leave mode", "accelerate", "accelerate", "clear", "register"),
    *("add handler", "drop handler"),
)


def outcomes_of(mesh: DeviceMesh, acts: list[str], accelerates: bool) -> tuple[list[Any], bool]:
    with as_they_were():
        state = torch_now()
        world = World(mesh, accelerates)
        try:
            outcomes = [world.do(act) for act in acts]
        finally:
            world.leave()
        handlers().pop(aten.sigmoid.default, None)
        return outcomes, is_changed(state)


# Acceleration begins or ends inside `loss_parallel`; a temporary strategy ends after or before.
@example(["accelerate", "loss parallel", "accelerate", "loss parallel", "loss", "accelerate"])
@example(["loss parallel", "loss", "accelerate", "loss", "loss parallel"])
@example(["softmax", "strategy", "clear", "softmax", "strategy", "softmax"])
@example(["accelerate", "strategy", "accelerate", "softmax", "strategy", "softmax"])
@given(st.lists(st.sampled_from(ACTS), min_size=5, max_size=30))
def test_any_nesting_of_contexts_and_ops_is_as_in_torch(acts):
    mesh = mesh_of(4)
    acts = ["accelerate", *acts]
    assert outcomes_of(mesh, acts, True) == outcomes_of(mesh, acts, False)
