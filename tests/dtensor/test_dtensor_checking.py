"""Under `accelerate(check=...)` torch decides as well; ops decided differently stay with torch."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import torch
from outcomes import described
from small_world import counted, mesh_of, placed
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpStrategy, OutputSharding
from torch_state import changed, torch_now

from harness.contract import UsageError
from planners.dtensor.accelerate import accelerate
from planners.dtensor.cache.self_checking import DifferentDecision
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.search import cheapest, staying, tensor_meta

aten = torch.ops.aten

pytestmark = pytest.mark.usefixtures("cold")


def test_agreement_is_counted_without_a_warning(step):
    """With check=1 each op is a check, with a share of it the same ones each time."""
    expected = [described(step(rows)) for rows in (2, 3, 2, 5)]
    with accelerate(check=1) as accelerated:
        assert [described(step(rows)) for rows in (2, 3, 2, 5)] == expected
        info = accelerated.cache_info()
    assert (info.checks, info.differences) == (4 * 6, 0)
    assert info.hits > 0
    counts = []
    for _ in range(2):
        with accelerate(check=0.25) as accelerated:
            for _ in range(20):
                step(2)
            counts.append(accelerated.cache_info().checks)
    assert counts[0] == counts[1]
    assert 0.1 * 120 < counts[0] < 0.4 * 120


# Wrong decisions


def wrong(owner: Any, name: str, change: Callable[..., Any]) -> Any:
    """Let a function that decides ops answer wrongly for tanh."""
    decide = getattr(owner, name)

    def decided(*args: Any, **options: Any) -> Any:
        answer = decide(*args, **options)
        is_tanh = any(getattr(arg, "op", None) is aten.tanh.default for arg in args)
        return change(answer, *args) if is_tanh else answer

    return mock.patch.object(owner, name, decided)


def replicating(sharding: OutputSharding, *_: Any) -> OutputSharding:
    sharding.output_spec.placements = (Replicate(), Replicate())
    return sharding


def only_replicating(strategy: OpStrategy, *args: Any) -> OpStrategy:
    made = cheapest._expand_exhaustively(*args).strategies
    return OpStrategy([spec for spec in made if spec.output_spec.is_replicated()])


WRONG = {
    "decision": [(staying, "decide_without_redistribution", replicating)],
    "meta": [(tensor_meta, "plain_meta", lambda meta, _: meta._replace(dtype=torch.float64))],
    "search": [
        (staying, "decide_without_redistribution", lambda *_: None),
        (cheapest, "cheapest_strategy", only_replicating),
    ],
}


@pytest.mark.parametrize("part", WRONG)
def test_a_wrong_choice_is_caught_and_torch_chooses_from_then_on(part, step):
    """A wrong decision after a miss gives one warning and torch's results."""
    expected = described(step(2))
    clear_torch_caches()
    with ExitStack() as stack:
        for change in WRONG[part]:
            stack.enter_context(wrong(*change))
        accelerated = stack.enter_context(accelerate(check=1))
        with pytest.warns(DifferentDecision, match=r"aten\.tanh"):
            assert described(step(2)) == expected
        assert described(step(2)) == expected
        step(3)
        assert accelerated.cache_info().differences == 1


@pytest.mark.parametrize("rows", [2, 3])
def test_a_wrong_cache_is_caught_and_its_op_is_torchs_from_then_on(rows, step):
    """A cached spec that was changed in place is noticed, at its size and at a new size."""
    before, expected = torch_now(), described(step(rows))
    with accelerate(check=1) as accelerated:
        hidden = step(2)[0]
        hidden._spec.placements = (Partial(), Shard(0))
        with pytest.warns(DifferentDecision) as warned:
            assert described(step(rows)) == expected
        (text,) = [str(warning.message) for warning in warned]
        assert all(part in text for part in (str(aten.tanh.default), "the result is", "Spec(f32"))
        assert described(step(rows)) == expected
        assert accelerated.cache_info().differences == 1
    assert not changed(before)


def test_a_wrong_decision_of_an_op_in_place_is_caught_before_it_is_done():
    """An op in place runs once, by torch's decision."""
    mesh = mesh_of(4)
    x, y = (placed(mesh, counted(2, 8), Shard(0)) for _ in range(2))

    def wrong(schema: Any) -> OutputSharding:
        return OutputSharding(placed(mesh, counted(8, 8), Replicate())._spec)

    with (
        mock.patch.object(staying, "decide_without_redistribution", wrong),
        accelerate(check=1),
        torch.no_grad(),
    ):
        with pytest.warns(DifferentDecision, match=r"aten\.add_"):
            x.add_(y)
        x.add_(y)
    assert torch.equal(x.to_local(), counted(2, 8) * 3)


@pytest.mark.parametrize("check", [-0.1, 1.5, float("nan"), "1", None, True])
def test_a_share_that_is_none_is_refused(check):
    """A share outside of 0 to 1 is refused, and nothing changes."""
    with pytest.raises(UsageError, match="check must be a share"):
        accelerate(check=check)
    accelerate().stop()
