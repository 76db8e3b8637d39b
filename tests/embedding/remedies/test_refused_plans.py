"""What a planner says after TorchRec has refused to plan, whatever the reason."""

import math
from dataclasses import replace

import pytest
import torch
from built_problem import problem
from hypothesis import given, settings, strategies as st
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import (
    FixedAbsoluteStorageReservation,
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import ManagedCollisionCollection

from planners.embedding.drop_in.planner import Planner
from planners.embedding.remedies.changes import least_total, memory_left, share_leaving, with_memory
from planners.embedding.remedies.remedies import remedies

META = torch.device("meta")
GIB = 2**30

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


def bags(rows=400_000, tables=4):
    return EmbeddingBagCollection(
        device=META,
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}", num_embeddings=rows, embedding_dim=64, feature_names=[f"f{i}"]
            )
            for i in range(tables)
        ],
    )


def hashed_bags(rows):
    """MPZCH tables of four buckets."""
    tables = bags(rows)
    modules = {
        table.name: HashZchManagedCollisionModule(zch_size=rows, device=META, total_num_buckets=4)
        for table in tables.embedding_bag_configs()
    }
    collisions = ManagedCollisionCollection(modules, tables.embedding_bag_configs())
    return ManagedCollisionEmbeddingBagCollection(tables, collisions)


def machines(ranks=2, hbm=4 * GIB, ddr=4 * GIB, host=None):
    return Topology(
        world_size=ranks,
        local_world_size=host or ranks,
        compute_device="cuda",
        hbm_cap=hbm,
        ddr_cap=ddr,
    )


def only_fused(tables=4):
    return {f"t{i}": ParameterConstraints(compute_kernels=["fused"]) for i in range(tables)}


def refused(model, topology, reservation, **arguments):
    """Return the planner, and the notes of the PlannerError that it raises, as one text."""
    planner = Planner(
        topology=topology,
        storage_reservation=reservation,
        mode="best-plan",
        debug=False,
        **arguments,
    )
    with pytest.raises(PlannerError) as raised:
        planner.plan(model, get_default_sharders())
    return planner, "\n".join(getattr(raised.value, "__notes__", []))


class Counted(FixedAbsoluteStorageReservation):
    """A reservation in bytes that counts its calls."""

    calls = 0

    def reserve(self, *arguments, **named):
        Counted.calls += 1
        return super().reserve(*arguments, **named)


def test_a_reservation_above_all_memory_ends_with_what_is_enough():
    """A reservation in bytes above the HBM is tried a few times, and a smaller one is named."""
    Counted.calls = 0
    reservation = Counted(9 * GIB)
    _, notes = refused(bags(), machines(), reservation, constraints=only_fused())
    assert Counted.calls < 200
    assert "The storage reservation leaves no HBM." in notes
    assert "Reserve at most 95.2" in notes
    assert "Give each GPU 9.19" in notes


def test_a_reservation_that_raises_has_remedies():
    """If TorchRec's reservation itself fails, the error names a share that may be reserved."""
    model = nn.Module()
    model.tables = bags()
    model.dense = nn.Linear(20_000, 10_000, device=META)  # six times 0.75 GiB are reserved
    planner, notes = refused(model, machines(), HeuristicalStorageReservation(0.15))
    assert planner.verdict
    assert math.isinf(planner.bound_ms)
    assert "Reserve at most 95.2" in notes
    assert "Give each GPU" in notes


def test_hosts_that_torchrec_refuses_leave_other_remedies():
    """Numbers of hosts that do not divide the buckets are named, and memory remains a remedy."""
    reservation = FixedPercentageStorageReservation(0.1)
    topology = machines(4, GIB // 4, GIB // 4, host=2)
    _, notes = refused(hashed_bags(4_000_000), topology, reservation)
    assert "No plan is possible on 6, 8, 10, ... GPUs" in notes
    assert "Give each GPU" in notes
    assert "GiB of DDR" in notes


def test_a_reservation_of_everything_leaves_other_remedies():
    """With all HBM reserved, a smaller share is enough, and no more HBM is."""
    reservation = FixedPercentageStorageReservation(1.0)
    _, notes = refused(bags(), machines(), reservation, constraints=only_fused())
    assert "Reserve at most 95.2" in notes
    assert "More HBM is not enough: the reservation takes all of it." in notes


def test_ranks_without_hbm_get_the_hbm_that_is_enough():
    """Where ranks have no HBM at all, the remedy says how much is enough."""
    _, notes = refused(bags(), machines(hbm=0), FixedPercentageStorageReservation(0.1))
    assert "GiB of HBM in place of 0." in notes


class FailsForOtherBatches(FixedPercentageStorageReservation):
    """A user's reservation that knows one batch size alone."""

    def reserve(self, topology, batch_size, *arguments, **named):
        if batch_size != 512:
            raise KeyError(batch_size)
        return super().reserve(topology, batch_size, *arguments, **named)


def test_a_step_that_fails_is_named_and_fails_alone():
    """An error in one step leaves the remedies of the others, with the step's name and error."""
    reservation = FailsForOtherBatches(0.97)
    _, notes = refused(bags(), machines(), reservation, constraints=only_fused())
    assert "A smaller batch: not tried to the end, since KeyError" in notes
    assert "Reserve at most 95.2" in notes
    assert "Use 4 GPUs" in notes


ASKED = problem("synthetic[tables=2,seed=1]", gpus=2)
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


@given(total=st.integers(1, 2**48), data=st.data())
def test_the_largest_share_leaves_what_is_needed(total, data):
    """TorchRec's rounding of the share leaves the usable bytes, and 0.02 % more does not."""
    usable = data.draw(st.integers(0, total))
    share = share_leaving(total, usable)
    assert share <= 0 or int((1 - share) * total) >= usable
    assert math.floor((1 - share - 2e-4) * total) < usable


def test_what_users_can_change_comes_first():
    """More HBM is last."""
    asked = replace(
        problem("mixture[tables=10,seed=6,hbm=0.9,ddr=0.9]", gpus=8),
    )
    names = [remedy.name for remedy in remedies(asked, 10.0).remedies]
    places = ["HBM reserved", "batch size", "GPUs", "DDR per host"]
    assert names[-1] == "HBM per GPU"
    assert set(names[:-1]) <= set(places)


def test_without_time_nothing_is_called_insufficient():
    """A step without time says so, and does not say that its change is not enough."""
    asked = problem("mixture[tables=10,seed=6,hbm=0.9,ddr=0.1]", gpus=8)
    outcome = remedies(asked, 1e-9)
    text = "\n".join(outcome.findings)
    for step in ("A smaller batch", "More GPUs"):
        assert f"{step}: not tried to the end, since there is too little time." in text
    assert "enough alone" not in text
