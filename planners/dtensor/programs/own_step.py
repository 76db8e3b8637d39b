"""The program of a user's own training step: a function in a file, called on fake ranks."""

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from harness.contract import UsageError, one_line
from planners.dtensor.programs.world import OpProgram, playing_one_rank
from planners.dtensor.workloads import StepParameters


def own_step(
    path: Path, name: str, mesh: DeviceMesh, parameters: StepParameters, ranks_per_host: int
) -> OpProgram:
    """Return the program of the step that the function `name` in a file makes for a mesh.

    The results are the tensors that the step returns. If the step uses one optimizer, they include
    the optimizer's parameters and state. Raises UsageError if the file has no such function, if its
    code raises an error, or if the step calls no op on a DTensor.
    """
    optimizers: set[Optimizer] = set()
    hook = register_optimizer_step_pre_hook(lambda stepped, *_: optimizers.add(stepped))
    clip = mock.Mock(side_effect=torch.nn.utils.clip_grad_norm_)
    patched = mock.patch.object(torch.nn.utils, "clip_grad_norm_", clip)
    try:
        with playing_one_rank(ranks_per_host), patched:
            # 1. Import the file, with its folder first on the import path, as `python FILE` does.
            sys.path.insert(0, str(path.parent.resolve()))  # stays, for imports in functions
            function = runpy.run_path(str(path), run_name=path.stem).get(name)
            if not callable(function):
                raise UsageError(f"{path} has no function '{name}'.")
            # 2. Build the model.
            step = function(mesh)
            if not callable(step):
                raise UsageError(f"{path}:{name} must return the step, a function, not {step!r}.")
            # 3. Run the step once to make the optimizer's state, and once to count ops and results.
            first, before = _tensors(step()), _dispatched()
            second, after = _tensors(step()), _dispatched()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        where = f" in line {lines[-1]}" if lines else ""
        raise UsageError(f"{path}:{name} failed{where}: {one_line(error)}.") from error
    finally:
        hook.remove()
    if before == after:
        raise UsageError(f"{path}:{name} returns a step that calls no op on a DTensor.")
    optimizer = optimizers.pop() if len(optimizers) == 1 else None
    trained = _tensors([optimizer.param_groups, *optimizer.state.values()]) if optimizer else []
    return OpProgram(
        mesh,
        lambda: [*_tensors(step()), *trained],
        tuple(f"result {number}" for number in range(len(second) + len(trained))),
        size=after - before,
        cold=parameters.caches == "cold",
        compares_values=False,
        compares_moves=not clip.called,
        is_dynamic=[result.shape for result in first] != [result.shape for result in second],
        optimizer=optimizer,
        differentiates=True,
    )


def _dispatched() -> int:
    """Return the number of ops that torch looked up in its cache of decisions."""
    return sum(torch._C._get_DTensor_sharding_propagator_cache_stats())


def _tensors(results: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
