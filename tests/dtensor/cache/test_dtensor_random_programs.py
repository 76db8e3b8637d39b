"""Random programs have the same results under every dispatch, at old and new sizes."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch.distributed as dist
from random_programs import RandomProgram, outcomes_under, random_program, random_runs
from small_world import mesh_of
from torch.testing._internal.distributed.fake_pg import FakeStore
from watchers import MODES, compiled, under_mode

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.self_checking import SelfChecking
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import Dispatch

pytestmark = pytest.mark.filterwarnings("ignore")


def differences(
    shape: tuple[int, ...], seeds: range, most_runs: int = 4, **watching: Any
) -> Iterator[str]:
    """Yield the first difference from torch of each program and dispatch."""
    for seed in seeds:
        random = Random(seed)
        program = random_program(random, mesh_of(*shape))
        runs, takes_grad = random_runs(random)[:most_runs], random.random() < 0.3
        expected = outcomes_under(Dispatch(), program, runs, takes_grad, **watching)
        for dispatch in (InternedDispatch(), ShapeClass(), SelfChecking()):
            made = outcomes_under(dispatch, program, runs, takes_grad, **watching)
            if made != expected:
                name = type(dispatch).__name__
                yield f"{name}, seed {seed}: {_first(program, expected, made)}"


def _first(program: RandomProgram, expected: list[Any], made: list[Any]) -> str:
    for number, (run, other_run) in enumerate(zip(expected, made, strict=True)):
        for step, (one, other) in enumerate(zip(run, other_run, strict=True)):
            if one != other:
                names = [done.name for done in program.steps[: step + 1 - len(program.inputs)]]
                return f"run {number}, {program.inputs}, {names}:\n{one}\n{other}"
    raise AssertionError


@pytest.mark.parametrize(
    ("shape", "seeds"),
    [
        ((4,), range(20)),
        ((2, 2), range(20)),
        *(
            pytest.param(shape, range(1000, 2500), marks=pytest.mark.slow)
            for shape in ((4,), (2, 2), (3,), (2, 1, 2))
        ),
    ],
    ids=str,
)
def test_random_programs_have_torchs_results(shape, seeds):
    assert not list(differences(shape, seeds))


@pytest.mark.parametrize("mode", MODES)
def test_random_programs_under_a_mode_have_torchs_results_and_show_them(mode):
    """A mode around the ops of a program sees the same under every dispatch, on hits and misses."""
    assert not list(differences((2, 2), range(200, 208), watched=under_mode(mode)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "seeds", [range(300, 303), pytest.param(range(303, 340), marks=pytest.mark.slow)]
)
def test_compiled_random_programs_have_torchs_results(backend, seeds):
    """Programs whose ops are compiled under a dispatch have torch's results or its errors."""
    watching = {"watched": compiled(backend), "has_values": False, "most_runs": 2}
    assert not list(differences((4,), seeds, **watching))


@pytest.fixture
def last_rank() -> Iterator[None]:
    """Run as the last of four ranks, which gets the smallest or no part of uneven shards."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend="fake", rank=3, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_random_programs_have_torchs_results_on_the_last_rank(last_rank):
    assert mesh_of(4).get_rank() == 3
    assert not list(differences((4,), range(100, 115)))
