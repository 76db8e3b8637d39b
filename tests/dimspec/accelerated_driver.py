"""Asks a real ColossalAI with and without accelerate(), and while it is captured.

`test_upstream.py` and `test_dimspec_capture.py` say what is checked.
"""

# ruff: noqa: E402 - what ColossalAI imports must be stood in for before it is imported

from planners.dimspec.upstream import stubs

stubs.install()

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from copy import deepcopy

import colossalai
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from harness.model.errors import UsageError
from harness.planning.capture import capture
from planners.dimspec.upstream.accelerate import accelerate
from planners.dimspec.upstream.plain_values import device_mesh
from planners.dimspec.upstream.running import counting

SHAPE = (64, 32, 16)


def spec(partition, mesh=None, shape=SHAPE):
    return ShardingSpec(mesh or device_mesh((4, 4)), shape, dim_partition_dict=dict(partition))


def method():
    return vars(ShapeConsistencyManager)["shape_consistency"]


def restores(request):
    upstream = method()
    with accelerate() as accelerated:
        assert method() is not upstream
        try:
            accelerate()
        except UsageError as error:
            refused = str(error)
    after_block = method() is upstream
    accelerated.stop()
    with suppress(KeyError), accelerate(), counting():
        raise KeyError
    return {"after_block": after_block, "after_error": method() is upstream, "refused": refused}


def answers(request):
    mesh = device_mesh((4, 4))
    source, target = spec({1: [0, 1]}, mesh), spec({0: [0, 1]}, deepcopy(mesh))
    manager = ShapeConsistencyManager()
    with accelerate() as accelerated:
        path, comms, cost = manager.shape_consistency(source, target)
        first = path[0] is source, [str(each.sharding_sequence) for each in path]
        described = [str(comm) for comm in comms]
        path.clear(), comms.clear(), cost.clear()
        source.__init__(mesh, SHAPE, dim_partition_dict={1: [0]})
        again = manager.shape_consistency(spec({1: [0, 1]}, deepcopy(mesh)), target)
        searches = accelerated.searches
        manager.shape_consistency(spec({1: [0, 1]}), target)  # another mesh
        nothing = manager.shape_consistency(target, target)
    return {
        "first": first,
        "comms": described,
        "again": [str(each.sharding_sequence) for each in again[0]],
        "costs": again[2],
        "same_comms": [str(comm) for comm in again[1]] == described,
        "of_comm": str(again[1][0].sharding_spec.sharding_sequence),
        "of_mesh": again[1][0].device_mesh is mesh,
        "searches": [searches, accelerated.searches],
        "nothing": nothing,
    }


def left(request):
    manager = ShapeConsistencyManager()
    with accelerate() as accelerated:
        manager.forward_only = True
        try:
            cost = manager.shape_consistency(spec({0: [0]}), spec({}))[2]
        finally:
            manager.forward_only = False
        errors = []
        cube = device_mesh((2, 2, 2))
        for pair in ((spec({0: [1, 0]}), spec({})), (spec({0: [2]}, cube), spec({}, cube))):
            try:
                manager.shape_consistency(*pair)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
    return {
        "cost": cost,
        "errors": errors,
        "left": accelerated.left_to_upstream,
        "searches": accelerated.searches,
    }


def entries(manager):
    """Return what upstream's cache holds, as text, in its order."""
    return [
        [list(pair), found[0] and [str(spec) for spec in found[0]], str(found[1])]
        for pair, found in manager.cached_spec_pairs_transform_path.items()
    ]


def cache(request):
    """Make the same calls with and without us; return what the cache holds after each."""
    mesh = device_mesh((4, 4))
    manager = ShapeConsistencyManager()
    partitions = [{}, {0: [0]}, {1: [0, 1]}, {1: [1], 0: [0]}, {0: [0], 2: [1]}, {0: [1, 0]}]

    def call():
        seen = []
        for _ in range(2):
            for source in partitions:
                for target in partitions:
                    try:
                        found = manager.shape_consistency(spec(source, mesh), spec(target, mesh))
                    except KeyError:
                        continue
                    pair = tuple(
                        str(spec(each, mesh).sharding_sequence) for each in (source, target)
                    )
                    held = manager.cached_spec_pairs_transform_path[pair]
                    assert held[0] is found[0]
                    assert held[1] is found[1]
            seen.append(entries(manager))
            manager.cached_spec_pairs_transform_path[("[R, R, R]", "[S0, R, R]")] = (["old"], [])
            manager.cached_spec_pairs_transform_path[("x", "y")] = ([], [])
        manager.cached_spec_pairs_transform_path = {}
        manager.shape_consistency(spec({}, mesh), spec({0: [0]}, mesh))
        manager.cached_spec_pairs_transform_path.clear()
        manager.shape_consistency(spec({}, mesh), spec({0: [1]}, mesh))
        seen.append(entries(manager))
        manager.cached_spec_pairs_transform_path.clear()
        return seen

    manager.cached_spec_pairs_transform_path.clear()
    upstreams = call()
    with accelerate() as accelerated:
        ours = call()
    return {
        "equal": upstreams == ours,
        "entries": [len(each) for each in ours],
        "searches": accelerated.searches,
    }


def others(request):
    """Ask with classes of the user's own, whose methods count."""

    class Manager(ShapeConsistencyManager):
        asked = 0

        def get_all_one_step_transform_spec(self, *arguments):
            self.asked += 1
            return super().get_all_one_step_transform_spec(*arguments)

    class Mesh(DeviceMesh):
        def all_gather_cost(self, *arguments):
            return 1e6

    mesh = device_mesh((4, 4))
    dear = Mesh(mesh.logical_mesh_id.flatten(), (4, 4), init_process_group=False)
    manager = Manager()
    with accelerate() as accelerated:
        ShapeConsistencyManager().shape_consistency(spec({0: [0]}, mesh), spec({}, mesh))
        manager.shape_consistency(spec({0: [0]}, mesh), spec({}, mesh))
        cost = ShapeConsistencyManager().shape_consistency(spec({0: [0]}, dear), spec({}, dear))[2]
    return {"asked": manager.asked, "cost": cost["forward"], "left": accelerated.left_to_upstream}


def orders(request):
    """End contexts in the order that they began in."""
    upstream = method()
    accelerated = accelerate()
    counted = counting()
    counted.__enter__()
    accelerated.stop()
    within = method() is not upstream
    counted.__exit__(None, None, None)
    ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
    searches = accelerated.searches
    ShapeConsistencyManager.shape_consistency = upstream
    with accelerate() as again:
        ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
    return {
        "within": within,
        "searches": [searches, again.searches],
        "left": accelerated.left_to_upstream,
        "after": method() is upstream,
    }


def threads(request):
    """Ask in eight threads what one thread asks."""
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
        return {"equal": all(found == expected for found in pool.map(ask, range(16)))}


def other_release(request):
    colossalai.__version__ = "0.5.0"
    upstream = method()
    warned = []
    for any_release in (False, False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with accelerate(any_release=any_release) as accelerated:
                on = method() is not upstream
                ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
        warned.append([on, accelerated.searches, [str(each.message) for each in caught]])
    return {"warned": warned, "after": method() is upstream}


def four_conversions():
    """Return the costs of four conversions, the third one asked before."""
    mesh = device_mesh((2, 4), [0.5, 2.0], [0.25, 1.5])
    manager = ShapeConsistencyManager()
    pairs = [
        (spec({1: [0, 1]}, mesh), spec({0: [0, 1]}, mesh)),
        (spec({1: [1], 0: [0]}, mesh), spec({}, mesh)),
        (spec({1: [0, 1]}, mesh), spec({0: [0, 1]}, mesh)),
        (spec({}, mesh, (8, 8)), spec({}, mesh, (8, 8))),
    ]
    return [manager.shape_consistency(*pair)[2] for pair in pairs]


def captures(request):
    with accelerate() if request.get("accelerated") else nullcontext():
        upstream = method()
        expected = four_conversions()
        with capture("dimspec", request["path"]):
            assert method() is not upstream
            asked = four_conversions()
            other = device_mesh((4, 2))
            ShapeConsistencyManager().shape_consistency(spec({}, other), spec({0: [0]}, other))
        return {"same": asked == expected, "unhooked": method() is upstream}


def fails(request):
    upstream = method()
    with suppress(KeyError), capture("dimspec", request["path"]):
        four_conversions()
        raise KeyError
    return {"unhooked": method() is upstream}


HANDLERS = {
    "captures": captures,
    "fails": fails,
    "restores": restores,
    "answers": answers,
    "left": left,
    "cache": cache,
    "others": others,
    "orders": orders,
    "threads": threads,
    "other_release": other_release,
}
