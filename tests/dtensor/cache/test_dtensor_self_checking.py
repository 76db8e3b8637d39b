"""Under `accelerate(check=...)` torch decides as well; ops decided differently stay with torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Any
from unittest import mock

import pytest
import torch
from outcomes import described
from small_world import counted, mesh_of, placed
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor.placement_types import _StridedShard
from torch_state import is_changed, torch_now

from harness.contract import UsageError
from harness.contract.supported_releases import UnsupportedRelease
from planners.dtensor.accelerate import accelerate
from planners.dtensor.cache.self_checking import DifferentDecision, SelfChecking
from planners.dtensor.dispatch.specs import with_meta
from planners.dtensor.dispatch.torch_path import PROPAGATOR, clear_torch_caches
from planners.dtensor.search import cheapest, staying, tensor_meta

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("cold")


def test_agreement_is_counted_without_a_warning(step):
    expected = [described(step(rows)) for rows in (2, 3, 2, 5)]
    with accelerate(check=1) as accelerated:
        assert [described(step(rows)) for rows in (2, 3, 2, 5)] == expected
        info = accelerated.cache_info()
    assert (info.checks, info.differences) == (4 * 6, 0)
    assert info.hits > 0


def test_a_share_of_the_ops_is_checked_and_the_same_ones_each_time(step):
    counts = []
    for _ in range(2):
        with accelerate(check=0.25) as accelerated:
            for _ in range(20):
                step(2)
            counts.append(accelerated.cache_info().checks)
    assert counts[0] == counts[1]
    assert 0.1 * 120 < counts[0] < 0.4 * 120


def test_moves_that_torch_makes_by_itself_are_no_difference():
    mesh = mesh_of(2, 2)
    strided = placed(mesh, counted(2, 8), _StridedShard(0, split_factor=2), Shard(0))
    with accelerate(check=1) as accelerated:
        for _ in range(2):
            assert (strided @ strided.t()).shape == (8, 8)
        assert accelerated.cache_info().checks > 2


def test_a_vocabulary_parallel_embedding_is_no_difference():
    """Placements with a buffer of their own are compared without it, as torch caches them."""
    mesh = mesh_of(4)
    table = placed(mesh, counted(2, 4), Shard(0)).requires_grad_()
    rows = placed(mesh, torch.tensor([[1, 7]]), Replicate())

    def embedded() -> torch.Tensor:
        made = torch.nn.functional.embedding(rows, table)
        return made.redistribute(mesh, [Replicate()])

    expected = described(embedded(), False)
    with accelerate(check=1) as accelerated:
        for _ in range(3):
            assert described(embedded(), False) == expected
        info = accelerated.cache_info()
    assert info.checks >= 3
    assert info.differences == 0


def test_orders_of_a_norm_that_are_equal_numbers_are_no_difference():
    """Torch's cache answers for 2.0 what it has decided for 2."""
    x = placed(mesh_of(4), counted(2, 8), Shard(0))
    with accelerate(check=1) as accelerated:
        for order in (2, 2.0, 2):
            torch.linalg.vector_norm(x, order)
        assert accelerated.cache_info().differences == 0


def test_an_op_stays_with_torch_if_it_differs_while_another_thread_asks_torch(monkeypatch):
    """A difference that one thread finds is kept when another thread ends its own comparison."""
    mesh = mesh_of(4)
    checking = SelfChecking(1.0)
    is_asked, is_different = Event(), Event()
    decide = PROPAGATOR.propagate_op_sharding_non_cached

    def slow(schema: Any) -> Any:
        made = decide(schema)
        if schema.args_spec[0].shape[1] == 8:
            is_asked.set()
            assert is_different.wait(timeout=60)
        return made

    def compare(columns: int) -> None:
        checking._decided_by_torch(schema_of(columns), ())

    def schema_of(columns: int) -> OpSchema:
        x = placed(mesh, counted(2, columns), Shard(0))
        return OpSchema(aten.tanh.default, (x._spec,), {})

    monkeypatch.setattr(PROPAGATOR, "propagate_op_sharding_non_cached", slow)
    with checking.installed():
        asking = Thread(target=compare, args=(8,))
        asking.start()
        assert is_asked.wait(timeout=60)
        assert not checking._is_left_to_torch(aten.tanh.default)  # another thread asks torch
        other = schema_of(4)
        wrong = OutputSharding(with_placements(other.args_spec[0], Replicate()))
        right = OutputSharding(other.args_spec[0])
        with pytest.warns(DifferentDecision):
            assert not checking._agrees(other, wrong, None, right)
        is_different.set()
        asking.join()
        assert checking._is_left_to_torch(aten.tanh.default)


def with_placements(spec: Any, *placements: Any) -> Any:
    changed = with_meta(spec, spec.tensor_meta)
    changed.placements = placements
    return changed


def recipes(accelerated: accelerate, op: Any) -> dict[Any, Any]:
    return accelerated._dispatch._tables[op].entries


def corrupted_output(accelerated: accelerate) -> None:
    known = recipes(accelerated, aten.tanh.default)
    for key, recipe in known.items():
        output = with_meta(recipe.output, recipe.output.tensor_meta)
        output.placements = (Replicate(), Replicate())
        known[key] = replace(recipe, output=output)


def corrupted_moves(accelerated: accelerate) -> None:
    known = recipes(accelerated, aten.relu.default)
    for key, recipe in known.items():
        known[key] = replace(recipe, sharding=replace(recipe.sharding, needs_redistribute=False))


@pytest.mark.parametrize(
    ("corrupt", "op", "difference"),
    [
        (corrupted_output, aten.tanh.default, "the result is"),
        (corrupted_moves, aten.relu.default, "inputs are moved to"),
    ],
)
def test_a_wrong_recipe_is_caught_and_its_op_is_torchs_from_then_on(corrupt, op, difference, step):
    before, expected = torch_now(), described(step(2))
    with accelerate(check=1) as accelerated:
        step(2)
        corrupt(accelerated)
        with pytest.warns(DifferentDecision) as warned:
            assert described(step(2)) == expected
        (text,) = [str(warning.message) for warning in warned]
        assert all(part in text for part in (str(op), difference, "Spec(f32"))
        assert described(step(2)) == expected
        assert accelerated.cache_info().differences == 1
        assert not recipes(accelerated, op)
        assert recipes(accelerated, aten.mm.default)
    assert not is_changed(before)


def test_a_wrong_recipe_of_an_op_in_place_is_caught_before_it_is_done():
    mesh = mesh_of(4)
    x, y = (placed(mesh, counted(2, 8), Shard(0)) for _ in range(2))
    with accelerate(check=1) as accelerated, torch.no_grad():
        x.add_(y)
        for recipe in recipes(accelerated, aten.add_.Tensor).values():
            recipe.sharding.output_spec.placements = (Replicate(),)
        with pytest.warns(DifferentDecision, match=r"aten\.add_"):
            x.add_(y)
        x.add_(y)
    assert torch.equal(x.to_local(), counted(2, 8) * 4)


def test_a_wrong_class_is_caught(step):
    expected = [described(step(rows)) for rows in (2, 3)]
    with accelerate(check=1) as accelerated:
        step(2)
        classes = accelerated._dispatch._classes[aten.tanh.default].entries
        for key, known in classes.items():
            output = with_meta(known.output, known.output.tensor_meta)
            output.placements = (Partial(), Shard(0))
            classes[key] = known._replace(output=output)
        with pytest.warns(DifferentDecision, match=r"aten\.tanh"):
            assert described(step(3)) == expected[1]


@contextmanager
def wrong_search() -> Iterator[None]:
    search = cheapest.cheapest_strategy

    def wrong(mesh: Any, schema: Any, *rest: Any, **options: Any) -> Any:
        found = search(mesh, schema, *rest, **options)
        if schema.op is aten.tanh.default:
            kept = [spec for spec in found.strategies if spec.output_spec.is_replicated()]
            made = cheapest._expand_exhaustively(mesh, schema, *rest, **options).strategies
            found.strategies = kept or [spec for spec in made if spec.output_spec.is_replicated()]
        return found

    with (
        mock.patch.object(staying, "decide_without_redistribution", return_value=None),
        mock.patch.object(cheapest, "cheapest_strategy", wrong),
    ):
        yield


def wrong_decision() -> Any:
    decide = staying.decide_without_redistribution

    def wrong(schema: Any) -> Any:
        found = decide(schema)
        if schema.op is aten.tanh.default:
            found.output_spec.placements = (Replicate(), Replicate())
        return found

    return mock.patch.object(staying, "decide_without_redistribution", wrong)


def wrong_meta() -> Any:
    ask = tensor_meta.meta_of

    def wrong(schema: Any) -> Any:
        found = ask(schema)
        return found._replace(dtype=torch.float64) if schema.op is aten.tanh.default else found

    return mock.patch.object(tensor_meta, "meta_of", wrong)


@pytest.mark.parametrize("wrong", [wrong_search, wrong_decision, wrong_meta])
def test_a_wrong_choice_is_caught_and_torch_chooses_from_then_on(wrong, step):
    expected = described(step(2))
    clear_torch_caches()
    with wrong(), accelerate(check=1) as accelerated:
        with pytest.warns(DifferentDecision, match=r"aten\.tanh"):
            assert described(step(2)) == expected
        assert described(step(2)) == expected
        step(3)
        assert accelerated.cache_info().differences == 1


@pytest.mark.parametrize("check", [-0.1, 1.5, float("nan"), "1", None, True])
def test_a_share_that_is_none_is_refused(check):
    before = torch_now()
    with pytest.raises(UsageError, match="check must be a share"):
        accelerate(check=check)
    assert not is_changed(before)
    accelerate().stop()


def test_another_release_of_torch_is_left_to_torch(step, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    before, expected = torch_now(), described(step(2))
    with pytest.warns(UnsupportedRelease, match=r"tested with torch 2\.13\.0, 2\.15\.0, not with"):
        accelerated = accelerate(check=1)
    assert not is_changed(before)
    assert described(step(2)) == expected
    assert accelerated.cache_info() == (0, 0, 0, 0, 0, 0)
    accelerated.stop()
    with accelerate(any_release=True) as insisted:
        step(2)
        step(2)
        assert insisted.cache_info().hits > 0
