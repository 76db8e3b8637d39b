"""The front of plans that move more and more of a plan that is measured."""

from dataclasses import replace

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.decision import prepare, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.planning import PLANNING
from planners.embedding.problem import build
from planners.embedding.quality import quality


def planned(tables, gpus):
    workload = WorkloadSpec.parse(f"dlrm-856[tables={tables},seed=1]")
    problem = build(workload, find_topology("dgx_a100_80gb", gpus))
    return problem, prepare(problem, Planner).run()


def test_a_front_begins_where_nothing_moves_and_only_gets_better():
    problem, plan = planned(6, 16)
    near = PLANNING.moving.near(problem, plan)
    points = []
    for within, made in PLANNING.moving.front(near):
        validate(within, made)
        points.append((PLANNING.moving.moved(within, made), quality(within, made)["max_rank_ms"]))
    assert points[0] == (0.0, quality(problem, plan)["max_rank_ms"])
    assert len(points) > 1
    assert points == sorted(points)
    assert [ms for _, ms in points] == sorted((ms for _, ms in points), reverse=True)


def test_a_large_problem_has_no_front_beside_its_plan():
    problem, plan = planned(2, 16)
    many = replace(problem, tables=problem.tables * 200)
    assert PLANNING.moving.near(many, plan) is None
