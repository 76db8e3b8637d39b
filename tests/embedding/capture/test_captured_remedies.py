"""Remedies of captured problems: on changed machines, memory is reserved as in the job."""

from dataclasses import replace

import pytest
from captured_models import bags, built, captured, script
from torchrec.distributed.planner.storage_reservations import (
    FixedAbsoluteStorageReservation,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import ParameterConstraints

from planners.embedding.decision import validate
from planners.embedding.remedies.remedies import remedies

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


class Own(FixedPercentageStorageReservation):
    """A user's own reservation."""


def changes_of_captured(path, reservation):
    """Capture a job whose reservation leaves too little, and return what is enough."""
    live = script(bags(tables=4), storage_reservation=reservation)
    fused = ParameterConstraints(compute_kernels=["fused"])
    live = replace(live, constraints={f"table_{number}": fused for number in range(4)})
    assert captured(live, path).error
    outcome = remedies(built(path), 10.0)
    for remedy in outcome.remedies:
        validate(remedy.problem, remedy.decision)
    return {remedy.name: remedy for remedy in outcome.remedies}, "\n".join(outcome.findings)


@pytest.mark.parametrize(
    "reservation",
    [
        lambda: FixedPercentageStorageReservation(0.99),
        lambda: FixedAbsoluteStorageReservation(2**30 - 2**20),
        lambda: HeuristicalStorageReservation(0.5, dense_tensor_estimate=2**30),
    ],
)
def test_a_captured_problem_has_the_remedies_of_its_job(path, reservation):
    """A reservation that leaves too little, or raises, can be smaller; more HBM helps, too."""
    changes, _ = changes_of_captured(path, reservation)
    assert {"HBM reserved", "HBM per GPU"} <= set(changes)
    for remedy in changes.values():
        assert remedy.gap < 0.02


def test_a_users_own_reservation_is_known_for_its_machines_alone(path):
    """With a reservation that cannot be made again, changes that keep the machines remain."""
    changes, findings = changes_of_captured(path, lambda: Own(0.99))
    assert "HBM reserved" in changes
    assert "HBM per GPU" not in changes
    assert "its storage reservation Own is neither torchrec's nor shardbench's" in findings
