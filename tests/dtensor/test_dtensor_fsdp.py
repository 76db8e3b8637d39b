"""Steps under `fully_shard` repeat less, and whoever watches them sees what torch shows."""

import inspect
import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from fsdp_scenes import COMPILED, SCENES, WATCHED, seen, seen_first, sharded
from small_world import checked, mesh_of, problem_of
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch_state import changed, torch_now

from planners.dtensor.accelerate import HOOKS_SUPPORTED, accelerate, hooks_of_fsdp
from planners.dtensor.programs.training import fully_sharded, train

PAGE = Path(__file__).parents[2] / "docs" / "dtensor.md"

needs_hooks = pytest.mark.skipif(
    not HOOKS_SUPPORTED.include(torch.__version__), reason="this release keeps its hooks"
)


@pytest.fixture(autouse=True)
def two_ranks() -> None:
    mesh_of(2)


def test_the_phases_of_a_step_are_timed():
    """The four hooks of FSDP2, the two passes, clipping and the optimizer are phases."""
    found = checked("accelerated", problem_of("fsdp2-step[layers=1]/dgx_a100_80gb:4"))
    hooks = {"pre_forward", "post_forward", "pre_backward", "post_backward"}
    assert hooks | {"forward", "backward", "clipping", "optimizer"} <= found.phases.keys()


def repeated(model, optimizer):
    """Return the repeated work of a step: signatures read, marks entered."""
    watched = (inspect.signature, torch.profiler.record_function.__enter__)
    codes = [each.__code__ for each in watched]
    seen = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code in codes:
            seen[codes.index(frame.f_code)] += 1

    train(model, optimizer, torch.ones(2, 4, 64))
    sys.setprofile(note)
    train(model, optimizer, torch.ones(2, 4, 64))
    sys.setprofile(None)
    return [seen[number] for number in range(len(codes))]


@needs_hooks
def test_hooks_repeat_nothing_in_the_next_step_while_accelerated():
    """No signature is read, and few marks are entered."""
    model = fully_sharded(mesh_of(4), 3)
    optimizer = torch.optim.AdamW(model.parameters())
    before = repeated(model, optimizer)
    with accelerate():
        signatures, marks = repeated(model, optimizer)
    assert signatures == 0 < before[0]
    assert marks < 10 < before[1]  # torch's own: the root's and the optimizer's
    assert repeated(model, optimizer) == before


@needs_hooks
def test_weights_are_torchs_to_the_last_bit():
    """Parameters that are gathered with kept views are trained as by torch."""

    def weights():
        torch.manual_seed(0)
        model = fully_sharded(mesh_of(4), 2)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(4):
            train(model, optimizer, torch.ones(2, 4, 64))
        return [parameter.to_local().clone() for parameter in model.parameters()]

    expected = weights()
    with hooks_of_fsdp():
        assert all(map(torch.equal, weights(), expected))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("scene", WATCHED)
def test_a_watched_model_shows_what_it_shows_in_torch(scene, is_warm):
    """Modes and profilers see the same ops, functions and marks of a model under FSDP2."""
    expected = seen(scene, is_warm=is_warm, accelerates=False)
    assert seen(scene, is_warm=is_warm, accelerates=True) == expected
    assert expected


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_the_first_scene_of_a_process_is_as_in_torch(scene):
    """The first mode, compilation or export of a process finds torch's own objects."""
    forks = get_context("forkserver")  # of a process that has imported torch and run nothing
    forks.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.tensor"])
    # Compilers do not see whether the model ran before.
    for is_warm in (False,) if scene in COMPILED else (False, True):
        with ProcessPoolExecutor(1, mp_context=forks) as pool:
            accelerated, plain = pool.submit(seen_first, scene, is_warm).result(timeout=300)
        assert accelerated == plain


def selective(model: Any, x: torch.Tensor) -> torch.Tensor:
    def policy(*_: Any, **__: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    return checkpoint(model, x, use_reentrant=False, context_fn=contexts)


RUNS = {
    "selective": selective,
    "checkpoint": lambda model, x: checkpoint(model, x, use_reentrant=False),
    "reentrant": lambda model, x: checkpoint(model, x, use_reentrant=True),
    "plain": lambda model, x: model(x),
}


@pytest.mark.parametrize("in_forward", [True, False])
@pytest.mark.parametrize("run", RUNS)
def test_acceleration_may_begin_or_end_between_forward_and_backward(run, in_forward):
    """A checkpoint recomputes in backward the same ops and tensors as it saved in forward."""
    model = sharded()
    gradients = []
    for accelerates in (False, True):
        for _ in range(2):  # the second time with kept views and functions
            x = torch.ones(2, 4, requires_grad=True)
            with accelerate() if accelerates and in_forward else nullcontext():
                made = RUNS[run](model, x)
            with accelerate() if accelerates and not in_forward else nullcontext():
                made.sum().backward()
        gradients.append(x.grad)
    assert gradients[0].shape == gradients[1].shape


def documented() -> set[str]:
    """Return the names in the first column of the page's table."""
    _, _, section = PAGE.read_text().partition("### What it replaces\n")
    rows = re.findall(r"^\|([^|]*)\|", section.partition("\n## ")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(torch\.[^`]*)`", row)}


@needs_hooks
def test_only_the_documented_names_change_and_each_keeps_its_type():
    """Names of torch that `accelerate()` replaces are documented, and keep functions and types."""
    accelerate().stop()  # which may import modules
    before = torch_now(("torch",))
    with accelerate():
        now = torch_now(("torch",))
        names = {name for name in changed(before, ("torch",)) if name.startswith("torch.")}
    assert names == documented()
    for name in names & before.keys():
        both_run = inspect.isroutine(before[name]) and inspect.isroutine(now[name])
        assert both_run or isinstance(now[name], type(before[name]))
    assert not changed(before, ("torch",))
