"""Random options for the dynamic programmes, and the proposals that proposers make from them."""

import torch
from built_problem import problem
from hypothesis import strategies as st
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

from planners.embedding.search.enumeration import DistinctShardEnumerator
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


def topology(device, ranks, hbm, ddr=None, host_ranks=None):
    """Return devices with `hbm` bytes of HBM and `ddr` bytes of DDR, which default to `hbm`."""
    return TopologyFactory.create_topology(
        TrainerConfig(world_size=ranks, local_world_size=host_ranks or ranks),
        HardwareConfig(hbm_cap_bytes=hbm, ddr_cap_bytes=hbm if ddr is None else ddr),
        KernelConfig(compute_device=device),
    )


def real_options(tables, memory):
    """Return the options of a synthetic workload, and its devices."""
    built = problem(f"synthetic[tables={tables},seed=7,memory={memory}]")
    enumerator = built.enumerator(DistinctShardEnumerator)
    return enumerator.enumerate(built.module, built.sharders), built.topology


@st.composite
def search_spaces(draw, hbm=BYTES, ddr=BYTES):
    """Draw the options of a few tables, in any order, and a unit of memory."""
    unit = draw(st.sampled_from([1, 10**9 + 7]))
    on_gpu, on_host = (kind.map(lambda size: size * unit) for kind in (hbm, ddr))
    shard = st.tuples(on_gpu, on_host, MILLISECONDS)
    tables = draw(st.integers(1, 5))
    numbers = [*range(tables), *draw(st.lists(st.integers(0, tables - 1), max_size=12))]
    return unit, [
        option(table, *draw(st.lists(shard, min_size=1, max_size=3)))
        for table in draw(st.permutations(numbers))
    ]


def driven(proposer, options, placed_on, rating=lambda number: None, at_most=10_000):
    """Return a proposer's proposals as option numbers; the nth gets `rating(n)` as feedback."""
    number = {id(one): index for index, one in enumerate(options)}
    proposer.load(list(options))
    proposals = []
    while (proposal := proposer.propose()) and len(proposals) < at_most:
        rated = rating(len(proposals))
        proposals.append([number[id(one)] for one in proposal])
        proposer.feedback(rated is not None, proposal, rated, placed_on)
    return proposals


def compiled(proposals, options, placed_on, *bins_per_device):
    """Return all proposals of a compiled dynamic programme, as option numbers."""
    chunks = list(proposals(search_space(options), devices_of(placed_on), *bins_per_device))
    assert all(len(chunk) <= 256 for chunk in chunks)
    return [row for chunk in chunks for row in chunk.tolist()]
