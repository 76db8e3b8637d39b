"""The variants that replace an optimizer's step: torch's decisions, and its values."""

import pytest
import torch
from small_world import checked, problem_of
from torch_state import is_changed, torch_now

from harness.contract import NotApplicable
from planners.dtensor import FAMILY
from planners.dtensor.workloads import OPTIMIZERS

HOST = "dgx_a100_80gb:8"
VARIANTS = ("local-step", "plain-step")


@pytest.mark.parametrize("options", [*(f"impl={each}" for each in OPTIMIZERS), "rule=sgd"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_some_steps_are_upstreams_to_the_last_bit(variant, options):
    values = []
    for name in ("upstream", variant):
        problem = problem_of(f"optimizer[{options},params=6,lr=changing,clip=norm]/{HOST}")
        prepared = FAMILY.find(name).prepared(problem)
        if variant == "plain-step" and name == "upstream":
            problem.program.optimizer.step()  # the limit takes one to make its state
        with prepared.installed():
            decisions = [prepared.run() for _ in range(3)]
        values.append([each.to_local().clone() for each in decisions[-1].outputs])
    assert all(map(torch.equal, *values))


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_dispatched_or_kept_or_left(variant):
    problem = problem_of(f"optimizer[impl=fused,params=4,lr=changing]/{HOST}")
    checked("upstream", problem)
    before, clip = torch_now(), torch.nn.utils.clip_grad_norm_
    attributes = vars(problem.program.optimizer).copy()
    counters = checked(variant, problem).counters
    assert (counters["lookups"], counters["objects_kept"], counters["bytes_kept"]) == (0, 0, 0)
    assert not is_changed(before)
    assert torch.nn.utils.clip_grad_norm_ is clip
    assert vars(problem.program.optimizer) == attributes


@pytest.mark.parametrize("variant", VARIANTS)
def test_other_workloads_are_not_theirs(variant):
    with pytest.raises(NotApplicable, match="no optimizer"):
        FAMILY.find(variant).prepared(problem_of(f"mlp/{HOST}"))


def test_plain_tensors_need_gradients_that_stay():
    with pytest.raises(NotApplicable, match="gradients"):
        FAMILY.find("plain-step").prepared(problem_of(f"fsdp2-step[layers=1]/{HOST}"))
