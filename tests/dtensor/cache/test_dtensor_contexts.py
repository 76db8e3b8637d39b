"""Under `accelerate`, contexts entered and left in any order behave as in torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from outcomes import described
from small_world import counted, placed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import register_op_strategy
from torch.distributed.tensor.debug import CommDebugMode, _clear_sharding_prop_cache
from torch.distributed.tensor.experimental import context_parallel, register_sharding
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch_state import (
    as_they_were,
    handlers,
    is_changed,
    logits_of,
    lost,
    negated,
    on_replicated,
    torch_now,
)

from planners.dtensor.accelerate import accelerate
from planners.dtensor.dispatch.torch_path import PROPAGATOR

aten = torch.ops.aten

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("strategies_as_they_were"),
]


def is_the_same_when_accelerated(run: Callable[[], Any]) -> Any:
    expected = run()
    torch._dynamo.reset()
    with accelerate():
        assert run() == expected
    return expected


# torch.compile


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("marked", ["mark_unbacked", "mark_dynamic"])
def test_symbolic_sizes_compile(mesh, marked, fullgraph):
    def run() -> Any:
        x = placed(mesh, counted(3, 2), Replicate())
        getattr(torch._dynamo.decorators, marked)(x, 0)
        compiled = torch.compile(
            lambda a: [torch.exp(a).t() + 1, a.sum(0), a.view(-1, 1, 2)],
            backend="eager",
            fullgraph=fullgraph,
        )
        return described(compiled(x))

    is_the_same_when_accelerated(run)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_loss_compiles_as_a_whole_inside_loss_parallel(mesh, dynamic):
    def run() -> Any:
        torch._dynamo.reset()
        compiled = torch.compile(
            functional.cross_entropy, backend="eager", fullgraph=True, dynamic=dynamic
        )
        with loss_parallel():
            rows = placed(mesh, torch.arange(4), Replicate())
            return described(compiled(logits_of(mesh), rows))

    is_the_same_when_accelerated(run)


# Handlers


def test_loss_parallel_keeps_its_handlers_under_a_dispatch_mode(mesh):
    def run() -> Any:
        with loss_parallel(), CommDebugMode() as mode:
            made = lost(mesh)
        with loss_parallel(), CommDebugMode() as other:
            made += lost(mesh, placed(mesh, torch.arange(4), Replicate()))
        return described(made), mode.get_comm_counts(), other.get_comm_counts()

    _, _, communicated = is_the_same_when_accelerated(run)
    assert sum(communicated.values()) == 3


def test_everybody_reaches_torchs_own_handlers(mesh):
    own = handlers()
    before = dict(own)
    with accelerate():
        assert handlers() is own
        assert own == before
        with loss_parallel():
            assert handlers() is own
            assert aten.nll_loss_forward.default in own
        assert own == before


@pytest.mark.parametrize("op", [aten.tanh.default, aten.tanh_.default], ids=str)
@pytest.mark.parametrize("has_reference", [False, True])
def test_a_handler_of_the_users_is_called_and_kept(op, has_reference, mesh):
    """Checks an op with recipes, and an op that is always left to torch."""
    x = placed(mesh, counted(2, 8), Shard(0))
    held = handlers()
    with accelerate():
        op(x.clone())
        (held if has_reference else handlers())[op] = negated
        assert torch.equal(op(x.clone()).to_local(), -x.to_local())
    assert handlers()[op] is negated
    with accelerate():
        assert torch.equal(op(x.clone()).to_local(), -x.to_local())
        del held[op]
        assert torch.equal(op(x.clone()).to_local(), x.to_local().tanh())
    assert op not in handlers()


def test_a_handler_that_takes_the_place_of_another_one_is_called(mesh):
    x = placed(mesh, counted(2, 8), Shard(0))
    held = handlers()
    held[aten.tanh_.default] = negated
    with accelerate():
        aten.tanh_.default(x)
        del held[aten.tanh_.default]
        held[aten.erf_.default] = negated  # as many handlers as before
        assert torch.equal(aten.erf_.default(x.clone()).to_local(), -x.to_local())


def test_handlers_are_found_where_the_dispatcher_was_kept(mesh):
    x = placed(mesh, counted(2, 8), Shard(0))
    dispatcher = DTensor._op_dispatcher
    with accelerate():
        torch.tanh(x)
        dispatcher._custom_op_handlers.update({aten.tanh.default: negated})
        assert torch.equal(torch.tanh(x).to_local(), -x.to_local())
        dispatcher._custom_op_handlers.pop(aten.tanh.default)
        assert torch.equal(torch.tanh(x).to_local(), x.to_local().tanh())
        dispatcher._custom_op_handlers = {aten.tanh.default: negated}
        assert torch.equal(torch.tanh(x).to_local(), -x.to_local())
        dispatcher._custom_op_handlers = {}
    assert handlers() == {}


def attended(mesh: DeviceMesh) -> Any:
    torch.manual_seed(0)
    query = torch.rand(1, 2, 32, 8)
    with context_parallel(mesh, buffers=[query], buffer_seq_dims=[2]):
        shape = tuple(query.shape)
        sharded = placed(mesh, query.clone(), Shard(2))
        try:
            made = described(functional.scaled_dot_product_attention(sharded, sharded, sharded), 0)
        except Exception as error:
            made = described(error, False)
    return shape, made, tuple(query.shape)


def test_context_parallel_works_and_leaves_torch_its_handlers(mesh):
    before, expected = handlers(), attended(mesh)
    state = torch_now()
    with accelerate():
        assert attended(mesh) == expected
        assert handlers() is before
        with loss_parallel():
            assert attended(mesh) == expected
    assert not is_changed(state)


# What torch forgets


def softmaxed(mesh: DeviceMesh) -> Any:
    return torch.softmax(placed(mesh, counted(2, 8), Shard(0)), 1).placements


def test_a_decision_by_an_earlier_strategy_is_remembered_as_in_torch(mesh):
    """Torch keeps its earlier decision after another strategy is registered."""

    def run(begun: Callable[[], Any]) -> list[Any]:
        with as_they_were():
            made = [softmaxed(mesh)]
            accelerated = begun()
            made.append(softmaxed(mesh))
            register_op_strategy(aten._softmax.default, RuntimeSchemaInfo(1))(on_replicated)
            PROPAGATOR.op_single_dim_strategy_funcs.pop(aten._softmax.default, None)
            made.append(softmaxed(mesh))
            _clear_sharding_prop_cache()
            made.append(softmaxed(mesh))
            if accelerated:
                accelerated.stop()
            return made

    expected = run(lambda: None)
    assert expected == [(Shard(0),)] * 3 + [(Replicate(),)]
    assert run(accelerate) == expected


def test_decisions_from_before_become_recipes_after_one_dispatch_by_torch(mesh):
    x = placed(mesh, counted(2, 8), Shard(0))
    expected = described([torch.tanh(x), x.view(-1, 2, 4), x.sum(0)])
    with accelerate() as accelerated:
        for _ in range(3):
            assert described([torch.tanh(x), x.view(-1, 2, 4), x.sum(0)]) == expected
        info = accelerated.cache_info()
    assert (info.misses, info.hits) == (3, 6)


def test_a_strategy_that_looks_at_numbers_is_asked_about_each(mesh):
    x = placed(mesh, counted(2, 8), Shard(0))

    @register_sharding(aten.leaky_relu.default)
    def by_slope(x: Any, slope: Any = 0.01) -> Any:
        where = Shard(0) if slope == 0.5 else Replicate()
        return [([where], [where, None])]

    def run() -> list[Any]:
        _clear_sharding_prop_cache()
        return [functional.leaky_relu(x, slope).placements for slope in (0.5, 0.25, 0.5)]

    is_the_same_when_accelerated(run)
