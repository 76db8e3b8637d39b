"""All variants turn a program into the same graph, mirrored by its block; counts are exact."""

import random
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import InfeasibleDecision, NotApplicable, UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.reshard import FAMILY
from planners.reshard.block import Block, GraphChanged, Policy, Twin, attributes_of
from planners.reshard.family import LADDER
from planners.reshard.problem import ReshardProblem, build, inventory, validate
from planners.reshard.program import ValueLayout, transformer
from planners.reshard.resharder import Resharder

SYNC_EACH, SYNC_AFTER_REMOVE, SYNC_ONCE, DELTA_SYNC, INDEXED = POLICIES = (
    Policy(),
    Policy(batches_removals=True),
    Policy(batches_removals=True, batches_insertions=True),
    Policy(batches_removals=True, has_journal=True),
    Policy(batches_removals=True, has_journal=True, is_indexed=True),
)
ACCEPTING = (SYNC_EACH, SYNC_AFTER_REMOVE, DELTA_SYNC, INDEXED)
"""The policies that accept edits by other code."""


def problem(workload: str, gpus: int = 4) -> ReshardProblem:
    """Return the problem of a workload on one machine."""
    return build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))


def resharded(name: str, asked: ReshardProblem):
    """Return the decision of a variant."""
    prepared = FAMILY.find(name).prepared(asked)
    prepared.begin()
    return prepared.run()


def checked(name: str, asked: ReshardProblem):
    """Return the checked decision of a variant, with counters."""
    return check(FAMILY, FAMILY.find(name), asked, SystemClock())


def chain(length: int) -> Twin:
    """Return a graph of ops that each read the previous op's value."""
    twin = Twin()
    last = twin.create("feed", [], ["v0"], {})
    for number in range(1, length):
        last = twin.create("step", [last.outputsAt(0)], [f"v{number}"], {"number": number})
    return twin


def texts(block: Block) -> list[str]:
    """Return the ops of a block as text."""
    return [str(op) for op in block.ops]


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
        for op in decisions[0].block.ops:
            if op.type in ("send", "recv"):
                pair = (stage, attributes_of(op.node)["peer"])
                (sent if op.type == "send" else received)[
                    pair if op.type == "send" else pair[::-1]
                ] += 1
    assert sent == received
    assert bool(sent) == (stages > 1)


def test_ops_that_communication_needs_stand_around_it():
    """Masks are sent as whole numbers, and later dimensions are gathered, split and joined."""
    first, second = (
        [op.type for op in resharded("indexed", problem(f"transformer[stage={stage}]")).block.ops]
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


@pytest.mark.parametrize("fault", ["other layout", "other stage", "missing op"])
def test_a_wrong_decision_is_refused(fault):
    """A wrong layout, a value on another stage and a wrong mirror are infeasible."""
    asked = problem("transformer[layers=2]")
    program, block = decision = resharded("sync-once", asked)
    kind = "matmul" if fault == "other layout" else "send"
    read = next(op for op in block.ops if op.type == kind).inputs[0]
    if fault == "missing op":
        block.ops.pop()
    else:
        program.layouts[read] = ValueLayout(0, 1) if fault == "other layout" else ValueLayout(1)
    with pytest.raises(
        InfeasibleDecision, match=r"needs .* but it is |another stage|edited behind"
    ):
        validate(asked, decision)


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


# --- Edits by other code -------------------------------------------------------------------------


def edit_behind(block: Block) -> None:
    """Insert an op as second one without the block."""
    block.twin.create("neg", [block.values["v0"]], ["other"], {}, block.ops[1].node)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_edit_by_other_code_is_found(policy):
    """`check` names the first op that differs, and a sync reads it."""
    block = Block(chain(4), policy)
    edit_behind(block)
    with pytest.raises(GraphChanged, match=r"op 1 is 'other = neg\(v0\)', .* 'v1 = step\(v0\)'"):
        block.check()
    block.sync()
    assert texts(block) == [
        *("v0 = feed()", "other = neg(v0)", "v1 = step(v0)", "v2 = step(v1)", "v3 = step(v2)")
    ]
    block.check()


def test_one_sync_at_the_end_refuses_edits_by_other_code():
    """With batches of insertions, an edit after other code's edit raises and changes nothing."""
    block = Block(chain(4), SYNC_ONCE)
    edit_behind(block)
    graph = str(block.twin.graph)
    edits = (
        lambda: block.insert(2, "slice", ["v0"], ["new"], {}),
        lambda: block.remove(block.ops[3:]),
    )
    for edit in edits:
        with pytest.raises(GraphChanged, match="no edits before a sync"):
            edit()
    assert str(block.twin.graph) == graph


def test_the_journal_finds_an_inserted_op_that_was_moved():
    """An edit that nobody counted is found if it moves an op of the journal."""
    block = Block(chain(4), DELTA_SYNC)
    op = block.insert(2, "slice", ["v0"], ["new"], {})
    op.node.moveAfter(block.ops[3].node)  # not through the twin
    with pytest.raises(GraphChanged, match=r"'new = slice\(v0\)' is not where it was put"):
        block.finish_edits()


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "rename", "remove", "behind", "destroy behind"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=30,
)


def edited(policy: Policy, edits: list[tuple[str, int, int]]) -> tuple[str, list[str]]:
    """Return a checked graph and its block as text after random edits, by the block and others."""
    block = Block(chain(6), policy)
    for count, (what, first, second) in enumerate(edits):
        nodes = block.twin.nodes()
        unread = [node for node in nodes[1:] if not node.outputsAt(0).uses()]
        place = 1 + first % (len(nodes) - 1)
        maker = nodes[second % place].outputsAt(0)
        if what == "behind":
            block.twin.create("neg", [maker], [f"b{count}"], {}, nodes[place])
        elif what == "destroy behind" and len(nodes) > 3:
            block.twin.destroy(unread[first % len(unread)])
        elif what == "insert":
            block.insert(place, "slice", [maker.debugName()], [f"n{count}"], {"count": count})
        elif what == "rename":
            block.begin_edit()
            op = block.ops[place]
            block.rename_input(op, op.inputs[0], maker.debugName())
        elif what == "remove" and len(nodes) > 3:
            block.begin_edit()
            block.remove([block.by_node[unread[first % len(unread)]]])
    block.finish_edits()
    if block.is_outdated:
        block.sync()
    block.check()
    block.twin.graph.lint()
    return str(block.twin.graph), texts(block)


@given(edits=EDITS)
def test_random_edits_end_with_the_same_graph_and_block(edits):
    """All policies end alike, the one that refuses edits by others if there are none."""
    expected = edited(SYNC_EACH, edits)
    assert all(edited(policy, edits) == expected for policy in ACCEPTING)
    own = [edit for edit in edits if "behind" not in edit[0]]
    assert edited(SYNC_ONCE, own) == edited(SYNC_EACH, own)


@pytest.mark.parametrize("seed", range(8))
def test_edits_by_other_code_while_resharding_are_accepted(seed):
    """The policies that accept edits by others reshard to the same graph in spite of them."""
    graphs = set()
    for policy in ACCEPTING:
        rng = random.Random(seed)
        program = transformer(2, 2, 2).copy()
        block = Block(program.twin, policy)
        resharder = Resharder(program, block, stage=seed % 2)
        for op in list(block.ops):
            if rng.random() < 0.2:
                nodes = program.twin.nodes()
                place = rng.randrange(1, len(nodes))
                read = rng.choice([node for node in nodes[:place] if node.outputsSize()])
                name = f"other{len(nodes)}"
                program.twin.create("look", [read.outputsAt(0)], [name], {}, nodes[place])
            resharder.reshard_op(op)
        block.finish_edits()
        if block.is_outdated:
            block.sync()
        block.check()
        program.twin.graph.lint()
        graphs.add(str(program.twin.graph))
    assert len(graphs) == 1
    assert graphs.pop().count("reshard::look") > 5
