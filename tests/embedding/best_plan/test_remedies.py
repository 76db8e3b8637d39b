"""Remedies for problems without a plan: plans that fit, proofs, and brute force on tiny ones."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from built_problem import problem
from hypothesis import given, settings, strategies as st
from small_problems import devices, fit, load, option, ways
from torchrec.distributed.planner.types import PlannerError

from planners.embedding.decision import validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.remedies.changes import with_batch
from planners.embedding.remedies.remedies import remedies
from planners.embedding.remedies.searching import DDR, GIB, HBM, Flat, in_order
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space


def fits(space, placed_on):
    plans = np.zeros((1, placed_on.ranks, 5))
    for table in range(space.tables):
        more = [
            load(space, placed_on, number, ranks)
            for number in np.flatnonzero(space.table == table).tolist()
            for ranks in ways(space, placed_on, number)
        ]
        plans = (plans[:, np.newaxis] + np.reshape(more, (-1, placed_on.ranks, 5))).reshape(
            -1, placed_on.ranks, 5
        )
    return bool(fit(plans, placed_on).any())


@pytest.mark.parametrize("kind", [HBM, DDR])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_the_least_memory_agrees_with_brute_force(kind, seed):
    draw = np.random.default_rng(seed)
    options = []
    for table in range(3):
        hbm, ddr = draw.integers(1, 9, 2).tolist()
        options.append(option(table, "device", (hbm, 0, 1.0)))
        options.append(option(table, "device", (hbm // 2, 0, 1.0), (hbm - hbm // 2, 0, 1.0)))
        options.append(option(table, "uniform", (1, ddr, 1.0), (1, ddr, 1.0)))
    space = in_order(search_space(options))
    found = Flat(space, devices((6, 6), (6, 6))).least_memory(kind, Deadline())
    held = (((c, 6) if kind == HBM else (6, c)) for c in range(40))
    least = next((h[kind] for h in held if fits(space, devices(h, h))), None)
    if least is None:
        assert math.isinf(found.bound)
        return
    assert round(found.rating * GIB) == least == math.ceil(found.bound * GIB)


def test_each_remedy_has_a_plan_that_fits_and_a_proof():
    asked = problem("mixture[tables=8,seed=3,hbm=0.3,ddr=0.1]", gpus=4)
    found = remedies(asked, 6.0)
    assert {"HBM per GPU"} <= {remedy.name for remedy in found.remedies}
    for remedy in found.remedies:
        validate(remedy.problem, remedy.decision)
        assert remedy.gap < 0.02
        assert remedy.changes
    assert found.remedies[-1].name == "HBM per GPU"


def test_a_table_that_fits_nowhere_is_named():
    asked = problem("mixture[tables=8,seed=3,hbm=0.3,ddr=0.1]", gpus=4)
    topology = asked.topology
    for device in topology.devices:
        device.storage = replace(device.storage, hbm=1000, ddr=1000)
    found = remedies(replace(asked, usable_hbm=(850,) * 4, usable_ddr=(1000,) * 4), 2.0)
    assert any("fits nowhere on its own" in sentence for sentence in found.causes)


@pytest.mark.parametrize(
    ("workload", "batch", "name"),
    [
        ("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", None, "HBM reserved"),
        ("mixture[tables=10,seed=2,hbm=0.4,ddr=2]", 50_000, "batch size"),
        ("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", None, "GPUs"),
    ],
)
def test_every_kind_of_remedy_is_found_where_it_is_enough(workload, batch, name):
    asked = problem(workload, gpus=8)
    asked = with_batch(asked, batch) if batch else asked
    found = {remedy.name: remedy for remedy in remedies(asked, 10.0).remedies}
    remedy = found[name]
    validate(remedy.problem, remedy.decision)
    assert math.isinf(Flat.of(asked).any_plan(Deadline()).bound)
    assert math.isfinite(Flat.of(remedy.problem).any_plan(Deadline()).bound)
    assert remedy.gap < 0.02
    assert " ".join(remedy.changes) in remedy.sentence


def test_the_planner_s_error_says_what_is_enough():
    asked = problem("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", gpus=8)

    def error(**options):
        planner = Planner(
            topology=asked.topology,
            batch_size=asked.batch_size,
            constraints=asked.constraints,
            storage_reservation=asked.storage_reservation(),
            debug=False,
            **options,
        )
        with pytest.raises(PlannerError) as raised:
            planner.plan(asked.module, asked.sharders)
        return raised.value

    theirs, ours = error(), error(mode="best-plan")
    addresses = re.compile(r"0x[0-9a-f]+")
    assert addresses.sub("", str(ours)) == addresses.sub("", str(theirs))
    notes = "\n".join(ours.__notes__)
    assert "Use 16 GPUs" in notes
    assert "Reserve at most" in notes
    assert "GPUs" not in "\n".join(error(mode="best-plan", remedy_seconds=0).__notes__)
