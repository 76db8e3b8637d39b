"""Modes, compilers, exports and profilers see under `accelerate()` what they see in torch."""

import inspect
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from fsdp_scenes import COMPILED, SCENES, WATCHED, seen, sharded
from small_world import mesh_of
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from planners.dtensor.accelerate import HOOKS_SUPPORTED, accelerate
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "dtensor.md"


@pytest.fixture(autouse=True)
def two_ranks() -> None:
    mesh_of(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("scene", WATCHED)
def test_a_watched_model_shows_what_it_shows_in_torch(scene, is_warm):
    """Modes and profilers see the same ops, functions and marks of a model under FSDP2."""
    expected = seen(scene, is_warm=is_warm, accelerates=False)
    assert seen(scene, is_warm=is_warm, accelerates=True) == expected
    assert expected


@pytest.fixture(scope="module")
def first_scenes() -> dict[tuple[str, bool], list[Any]]:
    """What is seen in each scene, warm or not, if it is the first of a process."""
    path = os.pathsep.join(map(str, (HERE.parents[1], HERE)))
    result = subprocess.run(
        [sys.executable, str(HERE / "fsdp_scenes.py")], stdout=subprocess.PIPE, check=True,
        text=True, timeout=300, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("[")]
    return {(scene, is_warm): both for scene, is_warm, *both in lines}


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_the_first_scene_of_a_process_is_as_in_torch(scene, first_scenes):
    """The first mode, compilation or export of a process finds torch's own objects."""
    for is_warm in (False,) if scene in COMPILED else (False, True):
        accelerated, plain = first_scenes[scene, is_warm]
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


def names_of_torch() -> Iterator[tuple[str, Any]]:
    """Yield what torch's modules, classes and ops hold, by name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, types.ModuleType):
            for attribute, value in list(vars(module).items()):
                yield f"{name}.{attribute}", value
                # `isinstance` asks some deprecated objects for their class, and they warn
                if issubclass(type(value), type) and value.__module__ == name:
                    for inner, method in list(vars(value).items()):
                        yield f"{name}.{attribute}.{inner}", method
    for name, space in list(vars(torch.ops).items()):
        if isinstance(space, types.ModuleType):
            for attribute, value in list(vars(space).items()):
                yield f"torch.ops.{name}.{attribute}", value
    for owner, path in ((PROPAGATOR, "ShardingPropagator()"), (DISPATCHER, "OpDispatcher()")):
        for attribute, value in list(vars(owner).items()):
            yield f"torch.distributed.tensor.{path}.{attribute}", value


def kind(value: Any) -> type:
    return types.FunctionType if inspect.isroutine(value) else type(value)


def documented() -> set[str]:
    """Return the names in the first column of the page's table."""
    _, _, section = PAGE.read_text().partition("### What it replaces\n")
    rows = re.findall(r"^\|([^|]*)\|", section.partition("\n## ")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(torch\.[^`]*)`", row)}


@pytest.mark.skipif(not HOOKS_SUPPORTED.include(torch.__version__), reason="it has other names")
def test_only_the_documented_names_change_and_each_keeps_its_type():
    """Names of torch that `accelerate()` replaces are documented, and keep functions and types."""
    accelerate().stop()  # which may import modules
    before = dict(names_of_torch())
    with accelerate():
        now = dict(names_of_torch())
    after = dict(names_of_torch())
    changed = {name for name in now if name not in before or now[name] is not before[name]}
    assert changed == documented()
    for name in changed & before.keys():
        assert kind(now[name]) is kind(before[name]) or isinstance(now[name], type(before[name]))
    assert not [name for name in before if after.get(name) is not before[name]]
