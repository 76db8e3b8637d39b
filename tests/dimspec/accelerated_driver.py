"""Checks a real ColossalAI with and without the drop-in, in a child process.

`test_colossalai.py` requests each check, and receives the error of a failed check.
"""

# Before ColossalAI, because it puts stubs in the place of packages that ColossalAI imports.
from planners.dimspec.upstream.driver import counting, device_mesh

# isort: split
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy

import colossalai
import pytest
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from harness.model.errors import UsageError
from shardbench import accelerate_colossalai as accelerate

SHAPE = (64, 32, 16)


def expect(found, expected):
    """Raise an AssertionError that shows both values if they differ."""
    assert found == expected, f"{found!r}, not {expected!r}"


def spec(partition, mesh=None, shape=SHAPE):
    return ShardingSpec(mesh or device_mesh((4, 4)), shape, dim_partition_dict=dict(partition))


def method():
    return vars(ShapeConsistencyManager)["shape_consistency"]


def names(specs):
    return [str(each.sharding_sequence) for each in specs]


def gives_the_method_back():
    upstream = method()
    with accelerate() as accelerated:
        assert method() is not upstream
        with pytest.raises(UsageError, match="accelerated already"):
            accelerate()
    assert method() is upstream
    accelerated.stop()
    with suppress(KeyError), accelerate(), counting():
        raise KeyError
    assert method() is upstream


def answers_with_fresh_lists_of_real_objects():
    mesh = device_mesh((4, 4))
    source, target = spec({1: [0, 1]}, mesh), spec({0: [0, 1]}, deepcopy(mesh))
    manager = ShapeConsistencyManager()
    with accelerate() as accelerated:
        path, comms, cost = manager.shape_consistency(source, target)
        assert path[0] is source
        expected = ["[R, S01, R]", "[R, S0, R]", "[S0, R, R]", "[S01, R, R]"]
        expect(names(path), expected)
        described = [str(comm) for comm in comms]
        assert described[0].startswith("CommSpec:(comm_pattern:GATHER_FWD_SPLIT_BWD")
        path.clear(), comms.clear(), cost.clear()
        source.__init__(mesh, SHAPE, dim_partition_dict={1: [0]})
        path, comms, cost = manager.shape_consistency(spec({1: [0, 1]}, deepcopy(mesh)), target)
        expect(names(path), expected)
        expect([str(comm) for comm in comms], described)
        expect(cost["total"], pytest.approx(25_085.5, abs=0.1))
        expect(str(comms[0].sharding_spec.sharding_sequence), expected[0])
        assert comms[0].device_mesh is mesh
        expect(accelerated.searches, 1)
        manager.shape_consistency(spec({1: [0, 1]}), target)  # another mesh
        nothing = manager.shape_consistency(target, target)
        expect(nothing, ([], [], {"forward": 0, "backward": 0, "total": 0}))
        expect(accelerated.searches, 3)


def leaves_to_upstream_what_it_does_not_answer():
    manager = ShapeConsistencyManager()
    cube = device_mesh((2, 2, 2))
    with accelerate() as accelerated:
        manager.forward_only = True
        try:
            expect(manager.shape_consistency(spec({0: [0]}), spec({}))[2]["backward"], 0)
        finally:
            manager.forward_only = False
        with pytest.raises(KeyError, match="S10"):
            manager.shape_consistency(spec({0: [1, 0]}), spec({}))
        with pytest.raises(KeyError, match="S2"):
            manager.shape_consistency(spec({0: [2]}, cube), spec({}, cube))
    expect((accelerated.left_to_upstream, accelerated.searches), (3, 0))


def leaves_upstreams_cache_as_upstream_would():
    """Make the same calls with and without accelerate(); compare ColossalAI's cache each round."""
    mesh = device_mesh((4, 4))
    manager = ShapeConsistencyManager()
    partitions = [{}, {0: [0]}, {1: [0, 1]}, {1: [1], 0: [0]}, {0: [0], 2: [1]}, {0: [1, 0]}]

    def entries():
        return [
            [list(pair), found[0] and [str(each) for each in found[0]], str(found[1])]
            for pair, found in manager.cached_spec_pairs_transform_path.items()
        ]

    def call():
        seen = []
        for _ in range(2):
            for source in partitions:
                for target in partitions:
                    try:
                        found = manager.shape_consistency(spec(source, mesh), spec(target, mesh))
                    except KeyError:
                        continue
                    pair = tuple(names(spec(each, mesh) for each in (source, target)))
                    held = manager.cached_spec_pairs_transform_path[pair]
                    assert held[0] is found[0]
                    assert held[1] is found[1]
            seen.append(entries())
            manager.cached_spec_pairs_transform_path[("[R, R, R]", "[S0, R, R]")] = (["old"], [])
            manager.cached_spec_pairs_transform_path[("x", "y")] = ([], [])
        manager.cached_spec_pairs_transform_path = {}
        manager.shape_consistency(spec({}, mesh), spec({0: [0]}, mesh))
        manager.cached_spec_pairs_transform_path.clear()
        manager.shape_consistency(spec({}, mesh), spec({0: [1]}, mesh))
        seen.append(entries())
        manager.cached_spec_pairs_transform_path.clear()
        return seen

    manager.cached_spec_pairs_transform_path.clear()
    upstreams = call()
    with accelerate() as accelerated:
        ours = call()
    expect(ours, upstreams)
    expect([len(each) for each in ours], [36, 37, 1])
    expect(accelerated.searches, 26)


def leaves_classes_of_the_users_own_to_upstream():
    class Manager(ShapeConsistencyManager):
        asked = 0

        def get_all_one_step_transform_spec(self, *arguments):
            self.asked += 1
            return super().get_all_one_step_transform_spec(*arguments)

    class Mesh(DeviceMesh):
        def all_gather_cost(self, *arguments):
            return 1e6

    mesh = device_mesh((4, 4))
    expensive = Mesh(mesh.logical_mesh_id.flatten(), (4, 4), init_process_group=False)
    manager, own = ShapeConsistencyManager(), Manager()
    with accelerate() as accelerated:
        manager.shape_consistency(spec({0: [0]}, mesh), spec({}, mesh))
        own.shape_consistency(spec({0: [0]}, mesh), spec({}, mesh))
        cost = manager.shape_consistency(spec({0: [0]}, expensive), spec({}, expensive))[2]
    expect((own.asked, accelerated.left_to_upstream), (1, 2))
    assert cost["forward"] >= 1e6


def may_end_before_what_began_after_it():
    upstream = method()
    accelerated = accelerate()
    counted = counting()
    counted.__enter__()
    accelerated.stop()
    assert method() is not upstream
    counted.__exit__(None, None, None)
    ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
    expect((accelerated.searches, accelerated.left_to_upstream), (0, 1))
    ShapeConsistencyManager.shape_consistency = upstream
    with accelerate() as again:
        ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
    expect(again.searches, 1)
    assert method() is upstream


def gives_threads_the_answers_of_one():
    mesh = device_mesh((4, 4))
    partitions = [{}, {0: [0]}, {1: [0, 1]}, {2: [1], 0: [0]}, {1: [0], 2: [1]}, {2: [0, 1]}]
    manager = ShapeConsistencyManager()

    def ask(_=None):
        found = []
        for source in partitions:
            for target in partitions:
                path, comms, cost = manager.shape_consistency(
                    spec(source, mesh), spec(target, mesh)
                )
                found.append([[str(each) for each in path], [str(each) for each in comms], cost])
        return found

    expected = ask()
    with accelerate(), ThreadPoolExecutor(8) as pool:
        for found in pool.map(ask, range(16)):
            expect(found, expected)


def warns_once_on_other_releases_and_leaves_them_to_upstream():
    colossalai.__version__ = "0.5.0"
    upstream = method()
    rounds = ((False, 1, False), (False, 0, False), (True, 0, True))
    for any_release, warned, is_on in rounds:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with accelerate(any_release=any_release) as accelerated:
                expect(method() is not upstream, is_on)
                ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
        expect((accelerated.searches, len(caught)), (int(is_on), warned))
        if warned:
            assert "tested with colossalai 0.4.0, 0.4.1, not with 0.5.0" in str(caught[0].message)
    assert method() is upstream


def handler(check):
    """Return a handler that answers nothing, or raises the check's AssertionError."""
    return lambda request: check() or {}


CHECKS = (
    gives_the_method_back,
    answers_with_fresh_lists_of_real_objects,
    leaves_to_upstream_what_it_does_not_answer,
    leaves_upstreams_cache_as_upstream_would,
    leaves_classes_of_the_users_own_to_upstream,
    may_end_before_what_began_after_it,
    gives_threads_the_answers_of_one,
    warns_once_on_other_releases_and_leaves_them_to_upstream,
)
HANDLERS = {check.__name__: handler(check) for check in CHECKS}
