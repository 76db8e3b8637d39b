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
from random import Random
from unittest.mock import patch

import colossalai
import pytest
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from harness.model.errors import UsageError
from shardbench import accelerate_colossalai as accelerate


def expect(found, expected):
    """Raise an AssertionError that shows both values if they differ."""
    assert found == expected, f"{found!r}, not {expected!r}"


def spec(partition, mesh=None, shape=(64, 32, 16)):
    return ShardingSpec(mesh or device_mesh((4, 4)), shape, dim_partition_dict=deepcopy(partition))


def method():
    return vars(ShapeConsistencyManager)["shape_consistency"]


class OwnManager(ShapeConsistencyManager):
    """A user's manager, whose steps cost more."""

    def get_all_one_step_transform_spec(self, source_spec, orig_cost_dict):
        steps = super().get_all_one_step_transform_spec(source_spec, orig_cost_dict)
        for _, cost in steps.values():
            cost["total"] += 1
        return steps


class OwnMesh(DeviceMesh):
    """A user's mesh, whose gathers cost a million."""

    def all_gather_cost(self, num_bytes, mesh_dim):
        return 1e6


# The last one is in an order that ColossalAI's dictionary of differences lacks.
PARTITIONS = [
    *({}, {0: [0]}, {1: [0, 1]}, {1: [1], 0: [0]}, {0: [1], 2: [0]}, {2: [0, 1]}),
    *({0: [0], 2: [1]}, {0: [1, 0]}),
]


def texts(path, comms):
    return [str(each.sharding_sequence) for each in path], [str(comm) for comm in comms]


def program(seed):
    """Return all that a random program sees of ColossalAI: answers, errors and its cache."""
    rng, seen = Random(seed), []
    mesh, cube = device_mesh((4, 4)), device_mesh((2, 2, 2))
    own = OwnMesh(mesh.logical_mesh_id.flatten(), (4, 4), init_process_group=False)
    meshes = [mesh, mesh, deepcopy(mesh), device_mesh((2, 8), (1.0, 0.1), (0.5, 0.01)), own, cube]
    for manager in (ShapeConsistencyManager(), OwnManager()):
        manager.cached_spec_pairs_transform_path = {}
    for _ in range(120):
        # 1. A conversion, of which the caller may change all that is its own.
        on, shape = rng.choice(meshes), rng.choice([(64, 32, 16), (32, 16, 48)])
        source, target = (spec(rng.choice(PARTITIONS), on, shape) for _ in range(2))
        manager = OwnManager() if rng.random() < 0.1 else ShapeConsistencyManager()
        manager.forward_only = rng.random() < 0.1
        try:
            path, comms, cost = manager.shape_consistency(source, target)
        except KeyError as error:
            seen.append(str(error))
            continue
        seen.append((texts(path, comms), dict(cost), path[:1] == [source]))
        for comm in comms:
            is_of_mesh = comm.device_mesh._process_group_dict is on._process_group_dict
            seen.append((str(comm.sharding_spec.sharding_sequence), is_of_mesh))
        # 2. ColossalAI's cache, which the caller may change or replace.
        known = manager.cached_spec_pairs_transform_path
        names = str(source.sharding_sequence), str(target.sharding_sequence)
        seen.append([known[names][0] is path, known[names][1] is comms])
        seen.append([(pair, entry[0] and texts(*entry)) for pair, entry in known.items()])
        match rng.randrange(8):
            case 0:
                path.clear(), comms.clear(), cost.clear()
            case 1:
                source.__init__(on, shape, dim_partition_dict={})
            case 2:
                known[names] = ([], [])
            case 3:
                manager.cached_spec_pairs_transform_path = {}
    ShapeConsistencyManager().forward_only = False
    return seen


def changes_nothing_that_a_program_sees():
    for seed in range(3):
        expected = program(seed)
        with accelerate() as accelerated:
            expect(program(seed), expected)
        assert min(accelerated.searches, accelerated.left_to_upstream) > 10


def searches_once_for_a_conversion():
    mesh = device_mesh((4, 4))
    with accelerate() as accelerated:
        for on in (mesh, mesh, deepcopy(mesh)):
            path, _, cost = ShapeConsistencyManager().shape_consistency(
                spec({1: [0, 1]}, on), spec({0: [0, 1]}, on)
            )
    expect((len(path), accelerated.searches), (4, 1))
    expect(cost["total"], pytest.approx(25_085.5, abs=0.1))


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
    specs = [spec(partition, mesh) for partition in PARTITIONS[:-1]]

    def ask(_=None):
        asked = ShapeConsistencyManager().shape_consistency
        answers = [asked(source, target) for source in specs for target in specs]
        return [(texts(path, comms), cost) for path, comms, cost in answers]

    expected = ask()
    with accelerate(), ThreadPoolExecutor(8) as pool:
        for answers in pool.map(ask, range(16)):
            expect(answers, expected)


def warns_once_on_other_releases_and_leaves_them_to_upstream():
    upstream = method()
    with patch.object(colossalai, "__version__", "0.5.0"):
        for any_release, warned, is_on in ((False, 1, False), (False, 0, False), (True, 0, True)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with accelerate(any_release=any_release) as accelerated:
                    expect(method() is not upstream, is_on)
                    ShapeConsistencyManager().shape_consistency(spec({0: [0]}), spec({}))
            expect((accelerated.searches, len(caught)), (int(is_on), warned))
            if warned:
                assert "tested with colossalai 0.4.0, 0.4.1, not with 0.5.0" in str(
                    caught[0].message
                )
    assert method() is upstream


def handler(check):
    """Return a handler that answers nothing, or raises the check's AssertionError."""
    return lambda request: check() or {}


CHECKS = (
    changes_nothing_that_a_program_sees,
    searches_once_for_a_conversion,
    gives_the_method_back,
    may_end_before_what_began_after_it,
    gives_threads_the_answers_of_one,
    warns_once_on_other_releases_and_leaves_them_to_upstream,
)
HANDLERS = {check.__name__: handler(check) for check in CHECKS}
