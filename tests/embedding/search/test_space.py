"""The arrays of a search space equal the attributes of the objects."""

from functools import reduce
from operator import add
from random import Random

import numpy as np
from hypothesis import given, strategies as st
from random_options import random_case
from torchrec.distributed.planner.perf_models import NoopPerfModel

from planners.embedding.search.space import Placement, devices_of, load_of_plan, search_space

randoms = st.randoms(use_true_random=False)

PLACEMENT = {
    "data_parallel": Placement.UNIFORM,
    "row_wise": Placement.UNIFORM,
    "table_wise": Placement.DEVICE,
    "column_wise": Placement.DEVICE,
    "table_row_wise": Placement.HOST_ROWS,
    "table_column_wise": Placement.HOST_COLUMNS,
    "grid_shard": Placement.HOSTS,
}


@given(random=randoms)
def test_each_option_is_there_with_its_shards(random):
    """Tables, groups and modules are numbered as first seen."""
    options = random_case(random).options
    space = search_space(options)
    assert space.options is options
    for number, option in enumerate(options):
        estimates = space.estimates_of(number)
        totals = [shard.perf.total for shard in option.shards]
        assert space.total[estimates].tolist() == totals
        # `sum` makes up for rounding since Python 3.12.
        assert [reduce(add, perf) for perf in space.perf[estimates].tolist()] == totals
        assert space.storage[estimates].tolist() == [
            [shard.storage.hbm, shard.storage.ddr, shard.storage.ssd] for shard in option.shards
        ]
        assert space.largest_shard[number] == max(totals)
        assert space.option_perf[number] == option.total_perf
        assert space.option_storage[number].tolist() == list(vars(option.total_storage).values())
        assert space.placement[number] == PLACEMENT[option.sharding_type]
    for numbers, names in (
        (space.table, [option.fqn for option in options]),
        (space.group[space.table], [option.dependency or option.fqn for option in options]),
        (space.module[space.table], [option.path for option in options]),
    ):
        first_seen = {name: number for number, name in enumerate(dict.fromkeys(names))}
        assert numbers.tolist() == [first_seen[name] for name in names]


def test_what_torchrec_refuses_to_place_goes_nowhere():
    """A row-wise table on a host is such an option."""
    option = random_case(Random(0)).options[0]
    option.partition_by, option.sharding_type = "host", "row_wise"
    assert search_space([option]).placement.tolist() == [Placement.NOWHERE]


@given(random=randoms)
def test_the_load_of_a_plan_on_its_devices_is_torchrecs(random):
    """Both its rating and the memory used."""
    case = random_case(random)
    devices = devices_of(case.topology)
    assert devices.ranks == case.topology.world_size
    assert devices.hosts == devices.ranks // case.topology.intra_group_size
    storages = [list(vars(device.storage).values()) for device in case.topology.devices]
    assert devices.storage.tolist() == storages
    plan = [case.options[numbers[0]] for numbers in case.tables().values()]
    used = np.zeros_like(devices.storage)
    for shard in (shard for option in plan for shard in option.shards):
        shard.rank = random.randrange(devices.ranks)
        used[shard.rank] += list(vars(shard.storage).values())
    load = load_of_plan(plan, devices.ranks)
    assert load.rating == NoopPerfModel(case.topology).rate(plan)
    assert (load.used == used).all()
