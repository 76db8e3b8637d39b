"""The arrays of a search space equal the attributes of the objects."""

from functools import reduce
from operator import add
from random import Random

from hypothesis import given, strategies as st
from random_options import random_case

from planners.embedding.search.space import Placement, devices_of, search_space

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
    options = random_case(random).options
    space = search_space(options)
    assert space.options is options
    for number, option in enumerate(options):
        estimates = space.estimates_of(number)
        assert space.total[estimates].tolist() == [shard.perf.total for shard in option.shards]
        assert space.storage[estimates].tolist() == [
            [shard.storage.hbm, shard.storage.ddr, shard.storage.ssd] for shard in option.shards
        ]
        assert space.largest_shard[number] == max(shard.perf.total for shard in option.shards)
        assert space.option_perf[number] == option.total_perf
        assert space.option_storage[number].tolist() == list(vars(option.total_storage).values())
        assert space.placement[number] == PLACEMENT[option.sharding_type]


@given(random=randoms)
def test_components_add_up_in_the_order_of_the_total(random):
    space = search_space(random_case(random).options)
    for perf, total in zip(space.perf.tolist(), space.total, strict=True):
        assert reduce(add, perf) == total  # `sum` makes up for rounding since Python 3.12


@given(random=randoms)
def test_tables_groups_and_modules_are_numbered_as_they_appear(random):
    options = random_case(random).options
    space = search_space(options)
    for numbers, names in (
        (space.table, [option.fqn for option in options]),
        (space.group[space.table], [option.dependency or option.fqn for option in options]),
        (space.module[space.table], [option.path for option in options]),
    ):
        first_seen = {name: number for number, name in enumerate(dict.fromkeys(names))}
        assert numbers.tolist() == [first_seen[name] for name in names]
    assert space.tables == len(set(space.table))


def test_what_torchrec_refuses_to_place_goes_nowhere():
    option = random_case(Random(0)).options[0]
    option.partition_by, option.sharding_type = "host", "row_wise"
    assert search_space([option]).placement.tolist() == [Placement.NOWHERE]


@given(random=randoms)
def test_devices_hold_what_the_topology_says(random):
    topology = random_case(random).topology
    devices = devices_of(topology)
    assert devices.ranks == topology.world_size
    assert devices.hosts == topology.world_size // topology.intra_group_size
    for device, storage in zip(topology.devices, devices.storage.tolist(), strict=True):
        assert storage == list(vars(device.storage).values())
