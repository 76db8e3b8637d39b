"""A training step under `fully_shard`: its phases, quicker hooks, and a fake world that is true."""

import inspect
import sys
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from small_world import checked, mesh_of, problem_of
from torch_state import is_changed, torch_now

from planners.dtensor import fsdp_hooks
from planners.dtensor.accelerate import HOOKS_SUPPORTED, accelerate, hooks_of_fsdp
from planners.dtensor.programs.training import fully_sharded, train

STEP = "fsdp2-step[layers=2]/dgx_a100_80gb:4"
HOOKS = {"pre_forward", "post_forward", "pre_backward", "post_backward"}

needs_hooks = pytest.mark.skipif(
    not HOOKS_SUPPORTED.include(torch.__version__), reason="this release keeps its hooks"
)


@pytest.mark.parametrize("variant", ["local-step", "accelerated"])
def test_variants_decide_as_torch_and_leave_nothing(variant):
    """The step's phases are known, and torch is as before."""
    problem = problem_of(STEP)
    upstream = checked("upstream", problem)
    before = torch_now()
    found = checked(variant, problem)
    assert found.fingerprint == upstream.fingerprint
    assert HOOKS | {"forward", "backward", "clipping", "optimizer"} <= found.phases.keys()
    assert not is_changed(before)


def repeated(model, optimizer):
    """Return the repeated work of a step: functions made, signatures read, marks entered."""
    watched = (
        torch._dynamo.eval_frame.DisableContext.__call__,
        inspect.signature,
        torch.profiler.record_function.__enter__,
    )
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
    """No function is made and no signature is read, and few marks are entered."""
    model = fully_sharded(mesh_of(4), 3)
    optimizer = torch.optim.AdamW(model.parameters())
    before = repeated(model, optimizer)
    with accelerate():
        functions, signatures, marks = repeated(model, optimizer)
    assert (functions, signatures) == (0, 0)
    assert marks < 10 < before[2]  # torch's own: the root's and the optimizer's
    assert repeated(model, optimizer) == before
    assert before[0] > 3
    assert before[1] > 0


@needs_hooks
def test_parameters_are_gathered_with_kept_views_and_equal_torchs(monkeypatch):
    """Weights are torch's to the last bit, and torch copies each block once."""

    def weights_of(steps):
        torch.manual_seed(0)
        model = fully_sharded(mesh_of(4), 2)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            train(model, optimizer, torch.ones(2, 4, 64))
        return [parameter.to_local().clone() for parameter in model.parameters()]

    expected = weights_of(4)
    by_torch = Mock(side_effect=fsdp_hooks._copy_out)
    monkeypatch.setattr(fsdp_hooks, "_copy_out", by_torch)
    with hooks_of_fsdp():
        assert all(map(torch.equal, weights_of(4), expected))
    assert by_torch.call_count == 2  # once for each block
