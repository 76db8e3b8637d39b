"""Workloads are checked before anything is built, and meshes follow the machines."""

import pytest

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dtensor.workloads import OPS, WORKLOADS, mesh_shape, parameters_of

MACHINE = "dgx_a100_80gb"


@pytest.mark.parametrize("workload", [workload.name for workload in WORKLOADS])
def test_every_listed_workload_is_valid_as_it_is(workload):
    assert parameters_of(WorkloadSpec(workload)).dims == 1


@pytest.mark.parametrize(
    ("workload", "name", "value"),
    [
        ("ops", "ops", OPS),
        ("ops[op=t]", "ops", ("t",)),
        ("miss[op=mm+view-sharded]", "ops", ("mm", "view-sharded")),
        ("dynamic", "dims", 1),
        ("dynamic[dims=3]", "dims", 3),
    ],
)
def test_a_parameter_has_the_given_value_or_its_default(workload, name, value):
    assert getattr(parameters_of(WorkloadSpec.parse(workload)), name) == value


@pytest.mark.parametrize(
    ("workload", "named"),
    [
        ("opts", ("'opts'", "did you mean ops?")),
        ("mlp[dims=2]", ("'mlp'", "'dims'", "none")),
        ("dynamic[dim=2]", ("'dynamic'", "'dim'", "did you mean dims?")),
        ("ops[op=mmm]", ("'op'", *OPS, "'mmm'")),
        ("ops[op=mm+]", ("'op'", *OPS, "'mm+'")),
        ("optimizer[impl=slow]", ("'impl'", "single", "foreach", "fused", "'slow'")),
        ("optimizer[rule=sgd,impl=fused]", ("'impl'", "single or foreach", "rule=sgd")),
        ("optimizer[params=0]", ("'params'", "from 1 to 10,000", "'0'")),
        ("ops[dims=5]", ("'dims'", "from 1 to 4", "'5'")),
        ("miss[cases=none]", ("'cases'", "from 1 to 10,000", "'none'")),
        ("miss[op=mm,cases=3]", ("'op' and 'cases'", "exclude")),
        ("miss[seed=3]", ("'seed'", "'cases'")),
    ],
)
def test_an_error_names_the_parameter_and_what_it_allows(workload, named):
    with pytest.raises(UsageError) as refused:
        parameters_of(WorkloadSpec.parse(workload))
    assert all(part in str(refused.value) for part in named)


@pytest.mark.parametrize(
    ("machine", "gpus", "shapes"),
    [
        (MACHINE, 8, [(8,), (2, 4), (2, 2, 2)]),
        (MACHINE, 16, [(16,), (2, 8), (2, 2, 4), (2, 2, 2, 2)]),
        (MACHINE, 6, [(6,), (2, 3)]),
        (MACHINE, 24, [(24,), (3, 8), (3, 2, 4), (3, 2, 2, 2)]),
        # Hosts that share a fast domain count as one.
        ("gb200_nvl72_tray4", 8, [(8,), (2, 4)]),
        ("gb200_nvl72_tray4", 144, [(144,), (2, 72)]),
    ],
)
def test_a_mesh_has_hosts_first_and_splits_their_gpus_in_the_rest(machine, gpus, shapes):
    topology = find_topology(machine, gpus)
    assert [mesh_shape(topology, ndim + 1) for ndim in range(len(shapes))] == shapes


@pytest.mark.parametrize(
    ("gpus", "ndim", "named"),
    [(512, 1, ("256", "512")), (7, 2, ("7 GPUs", "2 dim")), (8, 4, ("8 GPUs", "4 dim"))],
)
def test_a_mesh_that_is_not_possible_is_refused(gpus, ndim, named):
    with pytest.raises(UsageError) as refused:
        mesh_shape(find_topology(MACHINE, gpus), ndim)
    assert all(part in str(refused.value) for part in named)
