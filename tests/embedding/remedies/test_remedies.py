"""Remedies for problems without a plan: plans that fit, proofs, and what a planner's error says."""

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from built_problem import problem
from hypothesis import given, settings, strategies as st
from small_problems import devices, least_rating, option
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import (
    FixedAbsoluteStorageReservation,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.sharding_plan import get_default_sharders

from planners.embedding.best_plan.torchrec_rules import canonical_order
from planners.embedding.decision import validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.problem import changed, memory_left, with_memory
from planners.embedding.remedies.changes import (
    DDR,
    GIB,
    HBM,
    Flat,
    least_total,
    with_options,
)
from planners.embedding.remedies.remedies import remedies
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space

ASKED = problem("synthetic[tables=2,seed=1]", gpus=2)

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


@pytest.mark.parametrize("kind", [HBM, DDR])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_the_least_memory_agrees_with_brute_force(kind, seed):
    """The bound is as high as the plan needs."""
    draw = np.random.default_rng(seed)
    options = []
    for table in range(3):
        hbm, ddr = draw.integers(1, 9, 2).tolist()
        options.append(option(table, "device", (hbm, 0, 1.0)))
        options.append(option(table, "device", (hbm // 2, 0, 1.0), (hbm - hbm // 2, 0, 1.0)))
        options.append(option(table, "uniform", (1, ddr, 1.0), (1, ddr, 1.0)))
    space = search_space(options)
    space = with_options(space, canonical_order(space))
    plan = Flat(ASKED, space, devices((6, 6), (6, 6))).least_memory(kind, Deadline())
    memory = (((c, 6) if kind == HBM else (6, c)) for c in range(40))
    least = next(
        (m[kind] for m in memory if math.isfinite(least_rating(space, devices(m, m)))), None
    )
    if least is None:
        assert math.isinf(plan.bound)
    else:
        assert round(plan.rating * GIB) == least == math.ceil(plan.bound * GIB)


@pytest.mark.parametrize(
    ("workload", "batch", "names"),
    [
        ("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", None, {"HBM reserved", "GPUs"}),
        ("mixture[tables=4,seed=2,hbm=0.4,ddr=2]", 50_000, {"batch size"}),
    ],
)
def test_each_remedy_has_a_plan_that_fits_and_a_proof_and_more_hbm_is_last(workload, batch, names):
    """Each remedy is enough alone."""
    asked = problem(workload, gpus=8)
    asked = changed(asked, batch_size=batch) if batch else asked
    assert math.isinf(Flat.of(asked).any_plan(Deadline()).bound)
    several = remedies(asked, 3.0).remedies
    assert {remedy.name for remedy in several} >= names
    for remedy in several:
        validate(remedy.problem, remedy.decision)
        assert math.isfinite(Flat.of(remedy.problem).any_plan(Deadline()).bound)
        assert remedy.gap < 0.02
        assert " ".join(remedy.changes) in remedy.sentence
    assert [remedy.name for remedy in several].index("HBM per GPU") == len(several) - 1


def test_a_table_that_fits_nowhere_is_named():
    """It is named among the causes."""
    asked = problem("mixture[tables=8,seed=3,hbm=0.3,ddr=0.1]", gpus=4)
    asked = replace(asked, topology=with_memory(asked.topology, hbm=1000, ddr=1000))
    outcome = remedies(replace(asked, usable_hbm=(850,) * 4, usable_ddr=(1000,) * 4), 2.0)
    assert any("fits nowhere on its own" in sentence for sentence in outcome.causes)


def test_without_time_nothing_is_called_insufficient():
    """Steps that were not tried to the end are named."""
    asked = problem("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", gpus=8)
    text = "\n".join(remedies(asked, 1e-9).findings)
    for step in ("A smaller batch", "More GPUs"):
        assert f"{step}: not tried to the end, since there is too little time." in text
    assert "enough alone" not in text


def bags():
    configs = [
        EmbeddingBagConfig(400_000, 64, name=f"t{i}", feature_names=[f"f{i}"]) for i in range(4)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=configs)


class OwnReservation(FixedPercentageStorageReservation):
    """A user's reservation that knows one batch size and number of ranks alone."""

    def reserve(self, topology, batch_size, *arguments, **named):
        if (batch_size, topology.world_size) != (512, 2):
            raise KeyError(batch_size)
        return super().reserve(topology, batch_size, *arguments, **named)


ONLY_FUSED = {f"t{i}": ParameterConstraints(compute_kernels=["fused"]) for i in range(4)}
ABOVE_ALL = partial(HeuristicalStorageReservation, 0.15, dense_tensor_estimate=5 * GIB)


@pytest.mark.parametrize(
    ("memory", "reservation", "constraints", "said"),
    [
        ({}, partial(FixedAbsoluteStorageReservation, 9 * GIB), ONLY_FUSED,
         ("reservation leaves no HBM.", "Reserve at most 95.2", "Give each GPU 9.19")),
        ({}, ABOVE_ALL, ONLY_FUSED,
         ("reservation needs more than all HBM", "Reserve at most 95.2", "Give each GPU")),
        ({}, partial(FixedPercentageStorageReservation, 1.0), ONLY_FUSED,
         ("Reserve at most 95.2", "More HBM is not enough: the reservation takes all of it.")),
        ({"hbm_cap": 0}, partial(FixedPercentageStorageReservation, 0.1), None,
         ("GiB of HBM in place of 0.",)),
        ({}, partial(OwnReservation, 0.97), ONLY_FUSED,
         ("A smaller batch: not tried to the end, since KeyError", "Reserve at most 95.2",
          "More GPUs, up to 16, gave no plan.")),
    ],
    ids=["above all", "raises", "everything", "no HBM", "steps fail"],
)  # fmt: skip
def test_a_planners_error_says_what_is_enough(memory, reservation, constraints, said):
    """Whatever part of TorchRec refuses, the remedies that are left are named."""
    machines = {"hbm_cap": 4 * GIB, "ddr_cap": 4 * GIB} | memory
    topology = Topology(world_size=2, local_world_size=2, compute_device="cuda", **machines)
    planner = Planner(
        topology=topology,
        storage_reservation=reservation(),
        constraints=constraints,
        mode="best-plan",
        debug=False,
    )
    with pytest.raises(PlannerError) as raised:
        planner.plan(bags(), get_default_sharders())
    notes = "\n".join(raised.value.__notes__)
    for part in said:
        assert part in notes


def test_the_error_itself_is_torchrecs_and_remedies_can_be_left_out():
    """Remedies are notes on the error."""
    asked = problem("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", gpus=8)
    errors = []
    for arguments in ({}, {"mode": "best-plan", "remedy_seconds": 0}):
        planner = Planner(
            topology=asked.topology,
            constraints=asked.constraints,
            storage_reservation=asked.storage_reservation(),
            debug=False,
            **arguments,
        )
        with pytest.raises(PlannerError) as raised:
            planner.plan(asked.module, asked.sharders)
        errors.append(raised.value)
    theirs, ours = (re.sub(r"0x[0-9a-f]+", "", str(error)) for error in errors)
    assert ours == theirs
    assert "GPUs" not in "\n".join(errors[1].__notes__)


RESERVATIONS = {
    "share": lambda size: FixedPercentageStorageReservation(min(size, 1.0)),
    "bytes": lambda size: FixedAbsoluteStorageReservation(int(size * 2**40)),
    "both": lambda size: HeuristicalStorageReservation(
        min(size, 1.0), dense_tensor_estimate=int(size * 2**36) + 1
    ),
}


@given(
    kind=st.sampled_from([*RESERVATIONS]),
    size=st.floats(0, 1.2),
    present=st.integers(0, 2**38),
    usable=st.integers(1, 2**38),
)
@settings(max_examples=30, deadline=None)
def test_the_least_total_leaves_what_is_needed(kind, size, present, usable):
    """The total leaves the usable bytes, and totals below the lower number do not."""
    asked = replace(
        ASKED,
        topology=with_memory(ASKED.topology, hbm=present),
        reservation=lambda: RESERVATIONS[kind](size),
    )

    def left(total):
        return memory_left(asked, with_memory(asked.topology, hbm=total)).devices[0].storage.hbm

    totals = least_total(asked, "hbm", usable)
    if totals is None:
        assert left(255 * max(usable, present)) < usable
        return
    low, enough = totals
    assert left(enough) >= usable
    assert low == present or left(low - 1) < usable
    assert low <= enough <= low + max(usable, present) / 2**14 + 1
