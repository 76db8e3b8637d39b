"""`compare_step` measures a drop-in on a user's own step, and judges whether losses are equal."""

from contextlib import contextmanager

import pytest
import torch
from fake_clock import FakeClock

from harness.contract import UsageError
from shardbench import compare_step


class Job:
    """A model of one weight with a step that takes 2 s, or `lasts` seconds with the drop-in."""

    def __init__(self, lasts=1.0, error=0.0):
        self.clock, self.lasts, self.error, self.is_on = FakeClock(), lasts, error, False
        self.taken = {True: 0, False: 0}
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    @contextmanager
    def drop_in(self):
        self.is_on = True
        yield
        self.is_on = False

    def step(self):
        self.taken[self.is_on] += 1
        self.clock.advance(self.lasts if self.is_on else 2.0)
        loss = torch.nn.functional.dropout(self.model(torch.ones(1, 1))).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss + self.error * self.is_on

    def compared(self, *state, **options):
        return compare_step(self.step, self.drop_in, state=state, clock=self.clock, **options)

    def whole(self):
        return self.model, self.optimizer


@pytest.mark.parametrize(("lasts", "verdict"), [(1.0, "faster"), (2.0, "same"), (3.0, "slower")])
def test_the_ratio_is_that_of_the_wall_times(lasts, verdict, capsys):
    """The ratio of a step's wall time with and without the drop-in is printed with its verdict."""
    job = Job(lasts)
    found = job.compared(*job.whole(), blocks=4, steps=3)
    assert found.ratio.value == pytest.approx(lasts / 2)
    assert found.ratio.pairs == 8
    assert verdict in capsys.readouterr().out
    # two runs off and one on for losses, and an untimed step before each of the turns
    assert job.taken == {False: 2 * 3 + 8 * 4, True: 3 + 8 * 4}


def test_losses_of_a_training_are_compared_from_the_same_state():
    """Losses that change from step to step are equal if state and random numbers are restored."""
    job = Job()
    before = {name: value.clone() for name, value in job.model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert job.compared(*job.whole()).are_losses_equal is True
    assert torch.equal(torch.rand(1), expected)
    after = job.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert job.optimizer.state_dict()["state"] == {}


def test_losses_are_judged_only_if_they_repeat_themselves(capsys):
    """Without the state, a training's losses differ between two runs off; that is no difference."""
    job = Job(error=1e-3)
    assert job.compared(*job.whole()).are_losses_equal is False
    assert "Losses differ" in capsys.readouterr().out
    assert job.compared().are_losses_equal is None


def test_by_default_accelerate_is_measured():
    """Without a context, `accelerate()` is on for one side."""
    seen = set()

    def step():
        from planners.dtensor.accelerate import _switch

        seen.add(_switch.locked())
        return 1.0

    assert compare_step(step, blocks=1, steps=2).are_losses_equal is True
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("returned", "options"),
    [
        *((loss, {}) for loss in (None, "0.1x", torch.ones(2))),
        (1.0, {"blocks": 0}),
        (1.0, {"steps": 1}),
    ],
)
def test_a_step_without_a_loss_and_too_small_numbers_are_refused(returned, options):
    """A turn needs a step to fill caches, and an interval needs pairs."""
    with pytest.raises(UsageError, match=r"must return its loss|needs at least"):
        compare_step(lambda: returned, **options)
