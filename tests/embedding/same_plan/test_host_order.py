"""The order of the hosts and the tree of ranks are those of a sort, also with many equal loads."""

from random import Random

import numpy as np
from hypothesis import given, strategies as st
from random_options import random_case

from planners.embedding.same_plan.placing.hosts import sort_hosts, update_host
from planners.embedding.same_plan.placing.layout import Inputs, Work, inputs_of, work_for
from planners.embedding.search.compiling import kernel
from planners.embedding.search.space import Devices, Floats, Ints, search_space


@kernel
def load_least_loaded(problem: Inputs, work: Work, loads: Floats, chosen: Ints) -> None:
    sort_hosts(problem, work)
    for index in range(loads.size):
        rank = work.hosts.leader[1]
        chosen[index] = rank
        work.state.total[rank] += loads[index]
        update_host(problem, work, rank // problem.host_ranks)


@given(
    ranks=st.integers(1, 30),
    local_ranks=st.integers(1, 9),
    hosts_joined=st.integers(1, 2),
    totals=st.lists(st.sampled_from([0.0, 0.1, 0.3, 2.0]), min_size=30, max_size=30),
    loads=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.7]), max_size=20),
)
def test_the_least_loaded_rank_and_the_hosts_are_in_torchrecs_order(
    ranks, local_ranks, hosts_joined, totals, loads
):
    devices = Devices(np.ones((ranks, 3), np.int64), local_ranks, local_ranks * hosts_joined)
    space = search_space(random_case(Random(1)).options)
    problem = inputs_of(space, devices, by_perf=False, balance_modules=False)
    work = work_for(space, devices, len(problem.stretch_end))
    total = work.state.total
    total[:] = totals[:ranks]
    chosen = np.zeros(len(loads), np.int64)
    load_least_loaded(problem, work, np.array(loads, np.float64), chosen)
    expected = totals[:ranks]
    for load, rank in zip(loads, chosen.tolist(), strict=True):
        assert rank == min(range(ranks), key=lambda r: (expected[r], r % local_ranks, r))
        expected[rank] += load
    assert total.tolist() == expected
    of_hosts = [
        sum(expected[host * devices.host_ranks : (host + 1) * devices.host_ranks])
        for host in range(devices.hosts)
    ]
    assert work.hosts.order.tolist() == sorted(range(devices.hosts), key=of_hosts.__getitem__)
