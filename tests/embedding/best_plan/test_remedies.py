"""Remedies for problems without a plan: plans that fit, proofs, and brute force on tiny ones."""

import math
from dataclasses import replace

import numpy as np
import pytest
from built_problem import problem
from small_problems import devices, fit, load, option, ways

from planners.embedding.decision import validate
from planners.embedding.remedies.remedies import remedies
from planners.embedding.remedies.searching import GIB, HBM, Flat, in_order
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


@pytest.mark.parametrize("seed", range(12))
def test_the_least_memory_agrees_with_brute_force(seed):
    draw = np.random.default_rng(seed)
    options = []
    for table in range(3):
        hbm, ddr = draw.integers(1, 9, 2).tolist()
        options.append(option(table, "device", (hbm, 0, 1.0)))
        options.append(option(table, "device", (hbm // 2, 0, 1.0), (hbm - hbm // 2, 0, 1.0)))
        options.append(option(table, "uniform", (1, ddr, 1.0), (1, ddr, 1.0)))
    space = in_order(search_space(options))
    flat = Flat(space, devices((0, 6), (0, 6)))
    found = flat.least_memory(HBM, Deadline())
    least = next(c for c in range(40) if fits(space, devices((c, 6), (c, 6))))
    assert round(found.rating * GIB) == least == math.ceil(found.bound * GIB)


def test_each_remedy_has_a_plan_that_fits_and_a_proof():
    asked = problem("mixture[tables=8,seed=3,hbm=0.3,ddr=0.1]", gpus=4)
    found = remedies(asked, 6.0)
    assert {"HBM per GPU"} <= {remedy.name for remedy in found.remedies}
    for remedy in found.remedies:
        validate(remedy.problem, remedy.decision)
        assert remedy.gap < 0.02
        assert remedy.changes
    sizes = [remedy.size for remedy in found.remedies]
    assert sizes == sorted(sizes)


def test_a_table_that_fits_nowhere_is_named():
    asked = problem("mixture[tables=8,seed=3,hbm=0.3,ddr=0.1]", gpus=4)
    topology = asked.topology
    for device in topology.devices:
        device.storage = replace(device.storage, hbm=1000, ddr=1000)
    found = remedies(replace(asked, usable_hbm=(850,) * 4, usable_ddr=(1000,) * 4), 2.0)
    assert any("fits nowhere on its own" in sentence for sentence in found.causes)
