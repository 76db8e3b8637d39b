"""Random options for the dynamic programmes, and the proposals that proposers make from them."""

import numpy as np
import torch
from hypothesis import strategies as st
from random_options import Case
from torch import nn
from torchrec.distributed.planner.types import (
    HardwareConfig,
    KernelConfig,
    Perf,
    Shard,
    ShardingOption,
    Storage,
    TopologyFactory,
    TrainerConfig,
)

from planners.embedding.same_plan.proposals import stream
from planners.embedding.search.space import devices_of, search_space

# Few values, so that there are ties; and fractions whose sums depend on their order.
MILLISECONDS = st.integers(0, 4).map(float) | st.floats(0, 4)
BYTES = st.integers(0, 25)


def option(table, *shards):
    """Return an option of a table; a shard is (HBM bytes, DDR bytes, milliseconds)."""
    return ShardingOption(
        name=f"table_{table}",
        tensor=torch.empty(0, device="meta"),
        module=("module", nn.Module()),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type="column_wise",
        partition_by="device",
        compute_kernel="fused",
        shards=[
            Shard([1, 1], [0, 0], Storage(hbm, ddr), Perf(ms, 0.0, 0.0, 0.0))
            for hbm, ddr, ms in shards
        ],
        is_pooled=True,
    )


def topology(device, ranks, hbm, ddr):
    """Return one host with `hbm` bytes of HBM and `ddr` bytes of DDR for each rank."""
    return TopologyFactory.create_topology(
        TrainerConfig(world_size=ranks, local_world_size=ranks),
        HardwareConfig(hbm_cap_bytes=hbm, ddr_cap_bytes=ddr),
        KernelConfig(compute_device=device),
    )


@st.composite
def search_spaces(draw):
    """Draw the options of a few tables, in any order."""
    shard = st.tuples(BYTES, BYTES, MILLISECONDS)
    tables = draw(st.integers(1, 5))
    numbers = [*range(tables), *draw(st.lists(st.integers(0, tables - 1), max_size=12))]
    return [
        option(table, *draw(st.lists(shard, min_size=1, max_size=3)))
        for table in draw(st.permutations(numbers))
    ]


def driven(case: Case, proposer, rating=lambda number: None):
    """Return a proposer's proposals as option numbers; the nth gets `rating(n)` as feedback."""
    number = {id(option): index for index, option in enumerate(case.options)}
    proposer.load(list(case.options))
    proposals = []
    while proposal := proposer.propose():
        rated = rating(len(proposals))
        proposals.append([number[id(option)] for option in proposal])
        proposer.feedback(rated is not None, proposal, rated, case.topology)
    return proposals


def streamed(case: Case, proposer, rating=lambda number: None):
    """Return the proposals of a proposer's stream, in the same form."""
    proposed = stream(proposer, search_space(case.options), devices_of(case.topology))
    proposals: list[list[int]] = []
    rows = next(proposed, None)
    while rows is not None:
        assert len(rows) <= 256
        numbers = range(len(proposals), len(proposals) + len(rows))
        proposals += rows.tolist()
        try:
            rows = proposed.send(np.array([*map(rating, numbers)], float))  # NaN for None
        except StopIteration:
            break
    return proposals
