"""Caches have an upper bound on their size, and count their entries."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from unittest import mock

import pytest
import torch
from small_world import placed, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

from planners.dtensor.cache import interned
from planners.dtensor.cache.interned import BYTES_OF_MISS, InternedDispatch
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import BoundedTable, CacheInfo, bytes_held
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.dispatch.torch_path import PROPAGATOR

aten = torch.ops.aten


def rows_of(mesh: DeviceMesh, rows: int, columns: int = 8) -> DTensor:
    return placed(mesh, torch.ones(rows, columns), Shard(0))


def test_a_table_lets_the_oldest_entry_go():
    table: BoundedTable[str, int] = BoundedTable(2)
    entries = table.entries  # the same dictionary for good, as handlers keep it
    for number, key in enumerate("abac"):
        table.add(key, number)
    assert entries == {"b": 1, "c": 3}
    assert table.add("b", 4) == 1
    assert entries == {"b": 4, "c": 3}
    assert table.add("e", 5) == 4  # it was added before the other one
    assert entries == {"c": 3, "e": 5}
    table.clear()
    assert entries == {}
    table.add("d", 5)
    assert entries == {"d": 5}


def test_recipes_of_one_op_never_outgrow_their_limit(mesh):
    with running(InternedDispatch(most_recipes=4)) as dispatch:
        for rows in range(1, 20):
            assert torch.equal(torch.relu(rows_of(mesh, rows)).to_local(), torch.ones(rows, 8))
            assert dispatch.cache_info().entries == min(rows, 4)
        for rows in (19, 18, 17, 16):
            torch.relu(rows_of(mesh, rows))
        assert dispatch.cache_info()[:3] == (4, 19, 4)
        torch.neg(rows_of(mesh, 1))
        assert dispatch.cache_info()[:3] == (4, 20, 5)


def test_an_op_that_is_not_dispatched_takes_nothing(mesh, dispatch):
    with running(dispatch):
        torch.relu(rows_of(mesh, 2))
        assert set(dispatch._tables) == {torch.ops.aten.relu.default}


def test_classes_of_one_op_never_outgrow_their_limit(mesh):
    with running(ShapeClass(most_classes=4)) as dispatch:
        for ndim in range(1, 9):
            for rows in (2, 3):  # the second one belongs to the class of the first
                torch.relu(placed(mesh, torch.ones([rows] + [2] * ndim), Shard(0)))
            recipes_and_classes = dispatch.cache_info().entries
            assert recipes_and_classes == ndim + min(ndim, 4)
        assert dispatch.cache_info()[:2] == (8, 8)


def in_torchs_cache() -> int:
    return torch._C._get_DTensor_sharding_propagator_cache_stats()[1]


@pytest.mark.parametrize("has_recipes", [True, False])
def test_misses_never_take_more_bytes_than_their_limit(mesh, monkeypatch, has_recipes):
    if not has_recipes:
        monkeypatch.setattr(interned, "recipe_of", lambda *_: None)
    with running(InternedDispatch(most_bytes=100_000)) as dispatch:
        kept = []
        for rows in range(1, 101):
            assert torch.equal(torch.relu(rows_of(mesh, rows)).to_local(), torch.ones(rows, 8))
            kept.append((dispatch.cache_info().entries, in_torchs_cache()))
        assert dispatch.cache_info()[:2] == (0, 100)
    assert 10 < max(of_torch for _, of_torch in kept) < 30
    assert all(entries == (of_torch if has_recipes else 0) for entries, of_torch in kept)


def test_bytes_of_recipes_that_were_dropped_or_replaced_do_not_count(mesh):
    """Only kept recipes count towards the limit, however many have been made."""
    with running(ShapeClass(most_recipes=4, most_bytes=40_000)) as dispatch:
        for rows in range(2, 102):
            x = rows_of(mesh, rows)
            hash(x._spec)  # so that a recipe is kept for it
            torch.relu(x)
        assert dispatch.cache_info()[1:3] == (1, 4 + 1)  # nothing was cleared
        assert dispatch._bytes_added < 40_000
        dispatch.give_back(aten.relu.default)
        assert dispatch._bytes_added == BYTES_OF_MISS


def test_bytes_that_threads_add_at_once_are_all_counted(mesh):
    """No byte is lost if several threads miss at the same time."""
    with running(InternedDispatch()) as dispatch, ThreadPoolExecutor(8) as pool:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            list(pool.map(lambda _: [dispatch._make_room(1) for _ in range(2000)], range(8)))
        finally:
            sys.setswitchinterval(interval)
        assert dispatch._bytes_added == 16_000


def test_classes_are_bounded_by_bytes_too(mesh):
    with running(ShapeClass(most_bytes=20_000)) as dispatch:
        entries = []
        for rows in range(2, 102):
            x = rows_of(mesh, rows)
            for _ in range(3):  # decided by its class, then kept by its size
                torch.relu(x)
            entries.append(dispatch.cache_info().entries)
        assert dispatch.cache_info().misses < 20
    assert max(entries) < 30


def test_no_cache_of_torch_is_cleared_while_torch_dispatches(mesh):
    """While Python decomposes an op without a strategy, C++ holds a pointer into its cache."""
    decide, kept = PROPAGATOR.propagate_op_sharding_non_cached, []

    def without_strategies(schema: OpSchema) -> OutputSharding:
        kept.append((schema.op, in_torchs_cache()))
        if schema.op is aten.flatten.using_ints:
            raise NotImplementedError
        return decide(schema)

    with (
        running(InternedDispatch(most_bytes=-1)),
        mock.patch.object(PROPAGATOR, "propagate_op_sharding_non_cached", without_strategies),
        torch.inference_mode(),
    ):
        for columns in (8, 4):
            torch.relu(rows_of(mesh, 2))
            torch.flatten(rows_of(mesh, 2, columns))
    entries = dict(kept[-2:])
    assert list(entries) == [aten.flatten.using_ints, aten.view.default]
    assert entries[aten.view.default] >= entries[aten.flatten.using_ints] > 0


def test_a_spec_table_holds_no_more_than_its_limit(mesh):
    table = SpecTable(limit=8)
    meta = TensorMeta(torch.Size((8,)), (1,), torch.float32)
    with table.filled():
        for size in range(40):
            sized = meta._replace(shape=torch.Size((8 * size,)))
            for placements in ((Shard(0),), (Replicate(),)):
                made = DTensorSpec(mesh, placements, sized)
                assert (made.mesh, made.placements, made.tensor_meta) == (mesh, placements, sized)
        held = bytes_held([table])
        for size in range(40, 80):
            DTensorSpec(mesh, (Shard(0),), meta._replace(shape=torch.Size((8 * size,))))
        assert bytes_held([table]) < 1.5 * held
    table.clear()
    assert bytes_held([table]) < held / 5


def test_specs_from_a_table_equal_those_that_torch_makes(mesh):
    meta = TensorMeta(torch.Size((8, 4)), (4, 1), torch.float32)
    plain = [
        DTensorSpec(mesh, (placement,), meta) for placement in (Shard(0), Shard(1), Replicate())
    ]
    with SpecTable().filled():
        for _ in range(3):
            made = [DTensorSpec(mesh, spec.placements, meta) for spec in plain]
            assert made == plain
            assert [vars(spec) | {"_hash": None} for spec in made] == [
                vars(spec) | {"_hash": None} for spec in plain
            ]
            assert list(map(hash, made)) == list(map(hash, plain))
            assert DTensorSpec(mesh, [Shard(0)], meta) == plain[0]  # a list is allowed too
            with pytest.raises(AssertionError, match="must be normalized"):
                DTensorSpec(mesh, (Shard(-1),), meta)


def test_hits_misses_entries_and_bytes_are_counted(dispatch, mesh):
    with running(dispatch):
        assert dispatch.cache_info()[:3] == (0, 0, 0)
        for _ in range(3):
            torch.relu(rows_of(mesh, 1))
        assert dispatch.cache_info()[:3] == (2, 1, 1)
        small = dispatch.cache_info().bytes
        assert small > 1000
        for rows in range(1, 60, 2):
            torch.relu(rows_of(mesh, rows, columns=5))
        assert dispatch.cache_info().bytes > 2 * small
        dispatch.clear()
        assert dispatch.cache_info()[:3] == CacheInfo(0, 0, 0, 0)[:3]
        assert dispatch.cache_info().bytes < small


def test_an_error_is_a_miss_and_is_not_kept(mesh):
    with running(InternedDispatch()) as dispatch:
        for _ in range(2):
            with pytest.raises(RuntimeError):
                torch.mm(rows_of(mesh, 2), rows_of(mesh, 3))
        assert dispatch.cache_info()[:3] == (0, 2, 0)


@dataclass
class Held:
    parts: list[bytes]
    mesh: DeviceMesh


def test_shared_objects_are_counted_once_and_meshes_not_at_all(mesh):
    shared = bytes(10_000)
    one, two = Held([shared], mesh), Held([shared, shared], mesh)
    alone = bytes_held([one])
    assert alone == sum(map(sys.getsizeof, (one, vars(one), one.parts, shared, *vars(one))))
    assert bytes_held([one, two]) - alone < 1000
    assert bytes_held([one, one]) == alone
    assert bytes_held([mesh, torch.float32, torch.relu, torch]) == 0


def test_slots_and_keys_are_counted_as_attributes_are():
    table: BoundedTable[bytes, bytes] = BoundedTable(2)
    empty = bytes_held([table])
    table.add(bytes(5000), bytes(5001))
    assert bytes_held([table]) - empty > 10_000
