"""All variants turn a program into the same graph, mirrored by its block; counts are exact."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import InfeasibleDecision, NotApplicable, UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.reshard import FAMILY
from planners.reshard.block import (
    DELTA_SYNC,
    INDEXED,
    SYNC_AFTER_REMOVE,
    SYNC_EACH,
    SYNC_ONCE,
    Block,
    Policy,
)
from planners.reshard.family import LADDER
from planners.reshard.problem import ReshardProblem, build, inventory, validate
from planners.reshard.program import Layout, attributes_of, chain, create, transformer


def problem(workload: str, gpus: int = 4) -> ReshardProblem:
    """Return the problem of a workload on one machine."""
    return build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))


def resharded(name: str, asked: ReshardProblem) -> Block:
    """Return the decision of a variant."""
    prepared = FAMILY.find(name).prepared(asked)
    prepared.begin()
    return prepared.run()


def checked(name: str, asked: ReshardProblem):
    """Return the checked decision of a variant, with counters."""
    return check(FAMILY, FAMILY.find(name), asked, SystemClock())


@pytest.mark.parametrize("workload", ["transformer", "transformer[layers=3,stage=1]", "micro"])
def test_every_variant_makes_the_same_program(workload):
    """All variants make equal graphs with equal qualities, and the same ones again."""
    asked = problem(workload)
    decisions = [checked(name, asked) for name in (*LADDER, LADDER[-1])]
    assert len({cell.fingerprint for cell in decisions}) == 1
    assert len({tuple(cell.quality.items()) for cell in decisions}) == 1


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_stage_gets_the_layouts_that_its_ops_need(stages, ranks):
    """On meshes of several sizes, decisions are valid, and stages receive what others send."""
    program = transformer(4, stages, ranks)
    sent, received = Counter(), Counter()
    for stage in range(stages):
        asked = ReshardProblem(program, {}, stage)
        decisions = [resharded(name, asked) for name in ("sync-once", "indexed")]
        for decision in decisions:
            validate(asked, decision)
        assert len(set(map(FAMILY.work.fingerprint, decisions))) == 1
        for op in decisions[0].ops:
            if op.kind == "send":
                sent[stage, attributes_of(op.node)["peer"]] += 1
            elif op.kind == "recv":
                received[attributes_of(op.node)["peer"], stage] += 1
    assert sent == received
    assert bool(sent) == (stages > 1)


def test_ops_that_communication_needs_stand_around_it():
    """Masks are sent as whole numbers, and later dimensions are gathered, split and joined."""
    first, second = (
        [op.kind for op in resharded("indexed", problem(f"transformer[stage={stage}]")).ops]
        for stage in (0, 1)
    )
    assert first[first.index("cast") + 1] == "send"
    assert second[second.index("cast") - 1] == "recv"
    start = first.index("all_gather")
    assert first[start : start + 3] == ["all_gather", "split", "concat"]


def test_counters_are_exact():
    """Syncs, edits and visits of each policy follow from the numbers of insertions and removals."""
    asked = problem("transformer")
    counters = {name: checked(name, asked).counters for name in LADDER}
    each, removed, once = (counters[name] for name in LADDER[:3])
    inserts, removals = each["inserts"], each["removals"]
    assert min(inserts, removals) > 0
    same = {"inserts": inserts, "removals": removals, "edits": inserts + removals, "batches": 2}
    for counted in counters.values():
        assert (same | {"parses": each["parses"]}).items() <= counted.items()
    # before each insertion and after each removal, once between the two, and before the removals
    assert each["syncs"] == inserts + removals + 2
    assert removed["syncs"] == inserts + 3
    assert once["syncs"] == once["batches"] == 2
    for name in ("delta-sync", "indexed"):
        assert counters[name]["syncs"] == 0
        assert counters[name]["ops_visited"] == inserts
        crossed = [counted["crossed_bytes"] for counted in (counters[name], once, each)]
        assert crossed == sorted(set(crossed))


def test_counters_of_insertions_alone():
    """Without resharding, syncs visit all ops so far, and the journal only the inserted ones."""
    asked = problem("micro[ops=50,inserts=7]")
    each, once, delta = (checked(n, asked).counters for n in ("sync-each", "sync-once", "indexed"))
    assert each["ops_visited"] == sum(51 + done for done in range(8))
    assert (once["syncs"], once["ops_visited"], once["values_visited"]) == (1, 58, 58)
    assert (delta["syncs"], delta["ops_visited"], delta["values_visited"]) == (0, 7, 7)
    assert checked("indexed", asked).quality == {"moved_mib": 0, "inserted_ops": 7}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("other layout", "needs .* but it is"),
        ("other stage", "another stage|needs .* but it is"),
        ("missing op", "differ from those of its graph"),
        ("edit by other code", "differ from those of its graph"),
    ],
)
def test_a_wrong_decision_is_refused(fault, said):
    """A wrong layout, a value on another stage, and a block unlike its graph are infeasible."""
    asked = problem("transformer[layers=2]")
    block = resharded("indexed", asked)
    values = block.program.values
    read = {op.kind: op.inputs[0] for op in block.ops if op.inputs}
    match fault:
        case "other layout":
            values[read["matmul"]] = values[read["matmul"]]._replace(layout=Layout(0, 1))
        case "other stage":
            values[read["send"]] = values[read["send"]]._replace(layout=Layout(1))
        case "missing op":
            block.ops.pop()
        case "edit by other code":
            create(block.program.graph, "neg", [], ["other"], {}, block.ops[1].node)
    with pytest.raises(InfeasibleDecision, match=said):
        validate(asked, block)


def test_the_journal_finds_an_inserted_op_that_is_elsewhere():
    """The check of an inserted op compares its place."""
    block = Block(chain(3), DELTA_SYNC)
    block.insert(2, "slice", ["v0"], ["new"], {})
    block.ops[2].node.moveAfter(block.ops[4].node)
    with pytest.raises(InfeasibleDecision, match=r"'new = slice\(v0\)' is not where"):
        block.finish_insertions()


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "rename", "remove"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=30,
)


def edited(policy: Policy, edits: list[tuple[str, int, int]]) -> tuple[str, list[str]]:
    """Return a checked graph and its block as text after edits at random places."""
    block = Block(chain(5), policy)
    for count, (edit, first, second) in enumerate(edits):
        place = 1 + first % (len(block.ops) - 1)
        maker = block.ops[second % place].outputs[0]
        unread = [op for op in block.ops[1:] if not block.handles[op.outputs[0]].uses()]
        if edit == "insert":
            block.insert(place, "slice", [maker], [f"n{count}"], {"count": count})
        elif edit == "rename":
            op = block.ops[place]
            block.rename_input(op, op.inputs[0], maker)
        elif len(block.ops) > 3:
            block.finish_insertions()
            block.remove([unread[first % len(unread)]])
    block.finish_insertions()
    block.check()
    block.program.graph.lint()
    return str(block.program.graph), [str(op) for op in block.ops]


@given(edits=EDITS)
def test_random_edits_end_with_the_same_graph_and_block(edits):
    """All policies make the same graph, and mirror it."""
    expected = edited(SYNC_EACH, edits)
    others = (SYNC_AFTER_REMOVE, SYNC_ONCE, DELTA_SYNC, INDEXED)
    assert all(edited(policy, edits) == expected for policy in others)


@pytest.mark.parametrize(
    ("workload", "gpus", "said"),
    [
        ("transformer[layers=0]", 4, "from 1 to 256"),
        ("transformer[layers=1]", 4, "fewer layers than the 2 pipeline stages"),
        ("transformer[stage=2]", 4, "must be below 2"),
        ("transformer", 2, "2 GPUs in hosts of 2 do not make a mesh"),
        ("micro[ops=5,inserts=6]", 4, "'inserts' must be at most 5"),
        ("tranformer", 4, "did you mean transformer?"),
        ("micro[layers=3]", 4, "known are: inserts, ops, seed"),
    ],
)
def test_a_wrong_workload_is_refused(workload, gpus, said):
    """Each wrong workload gets an error that names the fault."""
    with pytest.raises(UsageError) as refused:
        problem(workload, gpus)
    assert said in str(refused.value)


def test_the_problems_of_the_suite_can_be_built():
    """All quick studies have a problem with facts, and hosts are stages."""
    for study in FAMILY.studies:
        if not study.large:
            asked = ProblemId.parse(study.problem)
            built = FAMILY.work.build(asked.workload, find_topology(asked.topology, asked.gpus))
            assert FAMILY.work_on(built).facts(built)
    assert problem("transformer[layers=4]", 32).facts["pipeline x tensor"] == "4 x 8"


def test_variants_stay_with_their_own_programs():
    """Our variants refuse Paddle's programs, and Paddle refuses ours."""
    for name, workload in (("indexed", "paddle"), ("paddle-3.3.1", "transformer")):
        with pytest.raises(NotApplicable):
            FAMILY.find(name).prepared(problem(workload))


def test_an_inventory_counts_ops_and_conversions():
    """The table covers all ops of a program; Paddle's own program has none."""
    machine = find_topology("dgx_a100_80gb", 4)
    for workload in ("transformer", "micro"):
        listed = inventory(WorkloadSpec.parse(workload), machine)
        assert sum(row[2] for row in listed.rows) == problem(workload).facts["ops"]
        assert any(row[3] for row in listed.rows) == (workload == "transformer")
    for asked in ((WorkloadSpec("paddle"), machine), (WorkloadSpec("transformer"), None)):
        with pytest.raises(UsageError):
            inventory(*asked)
