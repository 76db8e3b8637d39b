"""A training step under `fully_shard`: its phases, quicker hooks, and a fake world that is true."""

import inspect
import sys
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from small_world import checked, mesh_of, problem_of
from torch._dynamo import decorators
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param, _fsdp_param_group
from torch_state import is_changed, torch_now

from harness.contract import supported_releases
from harness.contract.supported_releases import UnsupportedRelease
from planners.dtensor import fsdp_hooks
from planners.dtensor.accelerate import HOOKS_SUPPORTED, accelerate, hooks_of_fsdp
from planners.dtensor.programs.training import fully_sharded, train

STEP = "fsdp2-step[layers=2]/dgx_a100_80gb:4"
HOOKS = {"pre_forward", "post_forward", "pre_backward", "post_backward"}

needs_hooks = pytest.mark.skipif(
    not HOOKS_SUPPORTED.include(torch.__version__), reason="this release keeps its hooks"
)


def hooks_now():
    return [
        _fsdp_param_group.record_function,
        _fsdp_param._from_local_no_grad,
        decorators.DisableContext,
        _fsdp_param_group.foreach_all_gather_copy_out,
        _fsdp_collectives._get_param_all_gather_inputs,
    ]


@pytest.mark.parametrize("variant", ["local-step", "accelerated"])
def test_variants_decide_as_torch_and_leave_nothing(variant):
    problem = problem_of(STEP)
    upstream = checked("upstream", problem)
    before, hooks = torch_now(), hooks_now()
    found = checked(variant, problem)
    assert found.fingerprint == upstream.fingerprint
    assert HOOKS | {"forward", "backward", "clipping", "optimizer"} <= found.phases.keys()
    assert not is_changed(before)
    assert all(map(lambda now, then: now is then, hooks_now(), hooks))


def marks_of(model, optimizer):
    with torch.profiler.profile() as profiler:
        train(model, optimizer, torch.ones(2, 4, 64))
    return sorted(event.key for event in profiler.key_averages() if "fsdp" in event.key.lower())


@needs_hooks
def test_a_profiler_sees_the_marks_and_ops_of_the_hooks():
    model = fully_sharded(mesh_of(4), 2)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, torch.ones(2, 4, 64))
    expected = marks_of(model, optimizer)
    with hooks_of_fsdp():
        train(model, optimizer, torch.ones(2, 4, 64))
        assert marks_of(model, optimizer) == expected != []


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


def test_another_release_of_torch_keeps_its_hooks(monkeypatch):
    hooks = hooks_now()
    monkeypatch.setattr(torch, "__version__", "2.15.0")
    monkeypatch.setattr(supported_releases, "_said", set())
    switched = hooks_of_fsdp()
    with pytest.warns(UnsupportedRelease):
        are_quicker = switched.__enter__()
    assert not are_quicker
    assert all(map(lambda now, then: now is then, hooks_now(), hooks))
    switched.__exit__(None, None, None)
