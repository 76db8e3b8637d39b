"""Under `accelerate`, contexts entered and left in any order behave as in torch."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from hypothesis import example, given, strategies as st
from outcomes import described, outcome, redistributions_counted
from small_world import counted, mesh_of, placed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import register_op_strategy, replicate_op_strategy
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.experimental import (
    context_parallel,
    implicit_replication,
    register_sharding,
)
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch_state import as_they_were, changed, handlers, torch_now
from watchers import MODES

from planners.dtensor.accelerate import accelerate
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR

aten = torch.ops.aten

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def strategies_as_they_were() -> Iterator[None]:
    with as_they_were():
        yield
    torch._dynamo.reset()


def logits_of(mesh: DeviceMesh) -> DTensor:
    return placed(mesh, counted(4, 2) / 10, Shard(1)).detach().requires_grad_()


def lost(mesh: DeviceMesh) -> list[torch.Tensor]:
    """Return the cross-entropy loss of logits with sharded classes, and the logits' gradient."""
    logits = logits_of(mesh)
    loss = functional.cross_entropy(logits, torch.arange(4))
    loss.backward()
    return [loss, logits.grad]


def negated(op: Any, args: Any, kwargs: Any) -> DTensor:
    if op._schema.is_mutable:
        args[0]._local_tensor.neg_()
        return args[0]
    return -args[0]


def on_replicated(op_schema: Any) -> OpStrategy:
    return replicate_op_strategy(op_schema)


@contextmanager
def another_strategy(op: Any) -> Iterator[None]:
    """Register another strategy for an op until the context ends, as torch's own tests do."""
    tables: tuple[dict[Any, Any], ...] = (
        PROPAGATOR.op_strategy_funcs,
        PROPAGATOR.op_to_schema_info,
        PROPAGATOR.op_single_dim_strategy_funcs,  # which torch looks at first
        PROPAGATOR.op_to_schema_info_for_single_dim_strategy,
    )
    before = [table.pop(op, None) for table in tables]
    register_op_strategy(op, RuntimeSchemaInfo(1))(on_replicated)
    try:
        yield
    finally:
        for table, value in zip(tables, before, strict=True):
            table.pop(op, None)
            if value is not None:
                table[op] = value
        _clear_sharding_prop_cache()


def attended(mesh: DeviceMesh) -> Any:
    """Return what attention makes inside `context_parallel`, which replaces torch's handlers."""
    query = torch.ones(1, 2, 32, 8)
    with context_parallel(mesh, buffers=[query], buffer_seq_dims=[2]):
        sharded = placed(mesh, query.clone(), Shard(2))
        attention = functional.scaled_dot_product_attention
        return query.shape, described(outcome(attention, sharded, sharded, sharded), False)


class World:
    """A program that enters contexts, leaves contexts and runs ops, one per call of `do`."""

    def __init__(self, mesh: DeviceMesh, accelerates: bool) -> None:
        self.mesh = mesh
        self.accelerates = accelerates
        self.accelerated: accelerate | None = None
        self.open: dict[str, ExitStack] = {}
        self.modes: list[tuple[Any, Callable[[Any], Any]]] = []
        self.handlers = handlers()
        self.x = placed(mesh, counted(2, 8), Shard(0))
        self.weight = placed(mesh, counted(8, 4), Replicate())
        self.part = placed(mesh, counted(2, 8), Partial())

    def do(self, act: str) -> Any:
        """Carry out an act, and return what can be seen of it."""
        if act in OPS:
            with redistributions_counted() as count:
                made = outcome(OPS[act], self)
                return act, described(made, not count[0] and act != "loss"), count[0]
        if act in MODES:
            enter, seen = MODES[act]
            mode = enter()
            self.modes.append((mode, seen))
            mode.__enter__()
        elif act == "leave mode" and self.modes:
            mode, seen = self.modes.pop()
            mode.__exit__(None, None, None)
            return seen(mode)
        elif act in CONTEXTS:
            if act in self.open:
                self.open.pop(act).close()
            else:
                self.open[act] = ExitStack()
                self.open[act].enter_context(CONTEXTS[act]())
        elif act == "accelerate" and self.accelerates:
            if self.accelerated is None:
                self.accelerated = accelerate()
            else:
                self.accelerated.stop()
                self.accelerated = None
        elif act in CHANGES:
            CHANGES[act](self)
        return act

    def leave(self) -> None:
        """Leave all contexts that are open."""
        while self.modes:
            self.do("leave mode")
        for name in list(self.open):
            self.do(name)
        if self.accelerated is not None:
            self.do("accelerate")


OPS: dict[str, Callable[[World], Any]] = {
    "tanh": lambda w: torch.tanh(w.x),
    "sigmoid": lambda w: torch.sigmoid(w.x),
    "sigmoid_": lambda w: torch.sigmoid_(w.x.clone()),
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
CONTEXTS: dict[str, Callable[[], Any]] = {
    "loss parallel": loss_parallel,
    "implicit": implicit_replication,
    "no grad": torch.no_grad,
    "strategy": lambda: another_strategy(aten._softmax.default),
}
OWN = aten.sigmoid.default, aten.sigmoid_.default
CHANGES: dict[str, Callable[[World], Any]] = {
    "clear": lambda w: _clear_sharding_prop_cache(),
    "register": lambda w: [
        register_op_strategy(aten.tanh.default)(on_replicated),
        PROPAGATOR.op_single_dim_strategy_funcs.pop(aten.tanh.default, None),
    ],
    "add handlers": lambda w: handlers().update(dict.fromkeys(OWN, negated)),
    "add a handler where it was kept": lambda w: w.handlers.update({OWN[0]: negated}),
    "drop handlers": lambda w: [handlers().pop(op, None) for op in OWN],
    "drop a handler where it was kept": lambda w: w.handlers.pop(OWN[0], None),
    "add a handler where the dispatcher was kept": lambda w: DISPATCHER._custom_op_handlers.update(
        {OWN[1]: negated}
    ),
    "replace handlers": lambda w: setattr(
        DTensor._op_dispatcher, "_custom_op_handlers", {**handlers(), OWN[0]: negated}
    ),
}
ACTS = (*OPS, *MODES, *CONTEXTS, *CHANGES, *("leave mode", "accelerate", "accelerate"))


def outcomes_of(mesh: DeviceMesh, acts: list[str], accelerates: bool) -> tuple[list[Any], set[str]]:
    with as_they_were():
        state = torch_now()
        world = World(mesh, accelerates)
        try:
            outcomes = [world.do(act) for act in acts]
        finally:
            world.leave()
        DTensor._op_dispatcher._custom_op_handlers = world.handlers
        for op in OWN:
            handlers().pop(op, None)
        return outcomes, changed(state)


# Acceleration begins or ends inside `loss_parallel`; a temporary strategy ends after or before;
# a decision by an earlier strategy is remembered; one handler takes the place of another.
@example(["accelerate", "loss parallel", "accelerate", "loss parallel", "loss", "accelerate"])
@example(["loss parallel", "loss", "accelerate", "loss", "loss parallel"])
@example(["loss parallel", "comm", "loss", "leave mode", "loss"])
@example(["softmax", "strategy", "clear", "softmax", "strategy", "softmax"])
@example(["accelerate", "strategy", "accelerate", "softmax", "strategy", "softmax"])
@example(["tanh", "accelerate", "tanh", "register", "tanh", "clear", "tanh"])
@example(["accelerate", "tanh", "accelerate", "tanh", "register", "tanh", "clear", "tanh"])
@example(
    ["sigmoid", "add handlers", "sigmoid", "sigmoid_", "accelerate", "drop handlers", "sigmoid"]
)
@example(["sigmoid_", "add handlers", "drop a handler where it was kept", "sigmoid", "sigmoid_"])
@given(st.lists(st.sampled_from(ACTS), min_size=5, max_size=30))
def test_any_nesting_of_contexts_and_ops_is_as_in_torch(acts):
    """Ops, modes, contexts and handlers have torch's results, whenever acceleration begins."""
    mesh = mesh_of(4)
    acts = ["accelerate", *acts]
    assert outcomes_of(mesh, acts, True) == outcomes_of(mesh, acts, False)


def is_the_same_when_accelerated(run: Callable[[], Any]) -> None:
    expected = run()
    torch._dynamo.reset()
    with accelerate():
        assert run() == expected


@pytest.mark.parametrize("marked", ["mark_unbacked", "mark_dynamic"])
def test_symbolic_sizes_compile(mesh, marked):
    """A compiled function with a symbolic size has torch's results."""

    def run() -> Any:
        x = placed(mesh, counted(3, 2), Replicate())
        getattr(torch._dynamo.decorators, marked)(x, 0)
        compiled = torch.compile(
            lambda a: [torch.exp(a).t() + 1, a.sum(0), a.view(-1, 1, 2)], backend="eager"
        )
        return described(compiled(x))

    is_the_same_when_accelerated(run)


def test_context_parallel_works_and_leaves_torch_its_handlers(mesh):
    """Python reaches torch's own handlers, which `context_parallel` replaces and restores."""
    before, kept, expected = handlers(), dict(handlers()), attended(mesh)
    state = torch_now()
    with accelerate():
        assert attended(mesh) == expected
        assert handlers() is before
        assert handlers() == kept
        with loss_parallel():
            assert attended(mesh) == expected
            assert aten.nll_loss_forward.default in before
    assert not changed(state)


def test_a_strategy_that_looks_at_numbers_is_asked_about_each(mesh):
    """A registered sharding may depend on a number, as in torch."""
    x = placed(mesh, counted(2, 8), Shard(0))

    @register_sharding(aten.leaky_relu.default)
    def by_slope(x: Any, slope: Any = 0.01) -> Any:
        where = Shard(0) if slope == 0.5 else Replicate()
        return [([where], [where, None])]

    def run() -> list[Any]:
        _clear_sharding_prop_cache()
        return [functional.leaky_relu(x, slope).placements for slope in (0.5, 0.25, 0.5)]

    is_the_same_when_accelerated(run)
