"""Random programs have torch's results under `accelerate()`, at old and new sizes."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
import torch.distributed as dist
from outcomes import ACCELERATED
from random_programs import RandomProgram, random_program
from small_world import mesh_of, played
from torch.testing._internal.distributed.fake_pg import FakeStore
from watchers import MODES, compiled, under_mode

pytestmark = pytest.mark.filterwarnings("ignore")

needs_compiler = pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")

Outcomes = list[list[tuple[str, Any]]]


def differences(
    shape: tuple[int, ...], seeds: Iterable[int], most_runs: int = 10, **watching: Any
) -> Iterator[str]:
    """Yield the first difference from torch of each program."""
    for seed in seeds:
        program = random_program(Random(seed), mesh_of(*shape))
        found: list[Outcomes] = []
        # Torch also decides all ops of every third program, and agrees.
        way = "accelerated" if seed % 3 else "checked"
        for enter in (nullcontext, ACCELERATED[way]):
            with played(enter) as accelerated:
                runs = program.runs[:most_runs]
                found.append([program.outcomes(run, **watching) for run in runs])
                if accelerated and accelerated.cache_info().differences:
                    yield f"seed {seed}: another decision in {program}"
        if found[0] != found[1]:
            yield f"seed {seed}, {way}: {first_difference(program, *found)}"


def first_difference(program: RandomProgram, expected: Outcomes, made: Outcomes) -> str:
    for number, (run, other_run) in enumerate(zip(expected, made, strict=True)):
        for at, (one, other) in enumerate(zip(run, other_run, strict=True)):
            if one != other:
                names = [name for name, _ in run[: at + 1]]
                return f"run {number}, {program.inputs}, {names}:\n{one}\n{other}"
    raise AssertionError


@pytest.mark.parametrize(
    ("shape", "seeds"),
    [
        ((4,), range(40)),
        ((2, 2), (*range(40), 1613)),
        *(
            pytest.param(shape, range(1000, 2500), marks=pytest.mark.slow)
            for shape in ((4,), (2, 2), (3,), (2, 1, 2))
        ),
    ],
    ids=str,
)
def test_random_programs_have_torchs_results(shape, seeds):
    """Values, specs, errors, gradients and side effects of all ops are torch's."""
    assert not list(differences(shape, seeds))


@pytest.mark.parametrize("mode", MODES)
def test_random_programs_under_a_mode_have_torchs_results_and_show_them(mode):
    """A mode around the ops of a program sees what it sees in torch, on hits and misses."""
    assert not list(differences((2, 2), range(200, 208), watched=under_mode(mode)))


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=needs_compiler)]
)
@pytest.mark.parametrize(
    "seeds",
    [
        (300,),
        # Torch's inductor crashes on program 322, also without `accelerate()`.
        pytest.param((*range(301, 322), *range(323, 340)), marks=pytest.mark.slow, id="more"),
    ],
    ids=str,
)
def test_compiled_random_programs_have_torchs_results(backend, seeds):
    """Programs with compiled ops have torch's results or its errors."""
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
    """A rank with fewer rows than the first one, or none, has torch's results."""
    assert mesh_of(4).get_rank() == 3
    assert not list(differences((4,), range(100, 115)))
