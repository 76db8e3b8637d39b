"""All reshard methods turn a block into the same program, and all its ops get valid inputs."""

import random
from collections import Counter

import pytest

from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import InfeasibleDecision, NotApplicable, UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.reshard import FAMILY
from planners.reshard.implementation import validate
from planners.reshard.problem import TransformerProblem, build
from planners.reshard.resharding.block import (
    Block,
    DeltaSync,
    GraphChanged,
    SyncAfterRemove,
    SyncOnce,
)
from planners.reshard.resharding.program import ValueLayout, transformer
from planners.reshard.resharding.resharder import IndexedResharder, Resharder
from planners.reshard.suite import LADDER

MACHINE = "dgx_a100_80gb"
IN_LINE = (
    (Block, Resharder),
    (SyncAfterRemove, Resharder),
    (DeltaSync, Resharder),
    (DeltaSync, IndexedResharder),
)


def problem(workload: str, gpus: int = 4):
    return build(WorkloadSpec.parse(workload), find_topology(MACHINE, gpus))


def made_by(name: str, asked):
    prepared = FAMILY.find(name).prepared(asked)
    prepared.begin()
    return prepared.run()


def checked(name: str, asked):
    return check(FAMILY, FAMILY.find(name), asked, SystemClock())


@pytest.mark.parametrize("workload", ["transformer", "transformer[layers=3,stage=1]", "micro"])
def test_every_variant_makes_the_same_program(workload):
    asked = problem(workload)
    found = [checked(name, asked) for name in (*LADDER, LADDER[-1])]
    assert len({cell.fingerprint for cell in found}) == 1
    assert len({tuple(cell.quality.items()) for cell in found}) == 1


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_stage_gets_what_its_ops_need(stages, ranks):
    program = transformer(4, stages, ranks)
    for stage in range(stages):
        asked = TransformerProblem(program, 4, stage)
        prints = set()
        for name in ("sync-once", "indexed"):
            made = made_by(name, asked)
            validate(asked, made)
            prints.add(FAMILY.work.fingerprint(made))
        assert len(prints) == 1


def test_what_one_stage_sends_another_one_receives():
    program = transformer(4, 2, 2)
    carried = []
    for stage in (0, 1):
        made = made_by("indexed", TransformerProblem(program, 4, stage))
        ops = Counter(op.type for op in made.block.ops)
        carried.append((ops["send"], ops["recv"]))
    (sent_by_first, got_by_first), (sent_by_second, got_by_second) = carried
    assert sent_by_first == got_by_second > 0
    assert sent_by_second == got_by_first > 0


def types(workload: str) -> list[str]:
    made = made_by("indexed", problem(workload))
    return [op.type for op in made.block.ops]


def test_a_mask_travels_as_whole_numbers():
    first, second = types("transformer[layers=2]"), types("transformer[layers=2,stage=1]")
    assert first[first.index("cast") + 1] == "send"
    assert second[second.index("cast") - 1] == "recv"


def test_what_is_sharded_behind_the_first_dimension_is_gathered_split_and_joined():
    made = types("transformer")
    start = made.index("all_gather")
    assert made[start : start + 3] == ["all_gather", "split", "concat"]


def test_counters_are_exact():
    asked = problem("transformer")
    counters = {name: checked(name, asked).counters for name in LADDER}
    each, removed, once = (counters[name] for name in LADDER[:3])
    inserts, removals = each["inserts"], each["removals"]
    assert inserts > 0
    assert removals > 0
    for found in counters.values():
        assert (found["inserts"], found["removals"]) == (inserts, removals)
        assert found["edits"] == inserts + removals
        assert found["parses"] == each["parses"]
        assert found["batches"] == 2
    # before each insertion and after each removal, once between the two, and before the removals
    assert each["syncs"] == inserts + removals + 2
    assert removed["syncs"] == inserts + 3
    assert once["syncs"] == once["batches"] == 2
    for name in ("delta-sync", "indexed"):
        found = counters[name]
        assert found["syncs"] == 0
        assert found["ops_visited"] == inserts <= found["edits"]
        assert found["crossed_bytes"] < once["crossed_bytes"] < each["crossed_bytes"]


def test_counters_of_insertions_alone():
    asked = problem("micro[ops=50,inserts=7]")
    each, once, delta = (checked(n, asked).counters for n in ("sync-each", "sync-once", "indexed"))
    assert each["ops_visited"] == sum(51 + done for done in range(8))
    assert (once["syncs"], once["ops_visited"], once["values_visited"]) == (1, 58, 58)
    assert (delta["syncs"], delta["ops_visited"], delta["values_visited"]) == (0, 7, 7)


def test_indexed_searches_nothing():
    asked = problem("transformer")
    assert checked("sync-once", asked).phases["searching"] > 0
    moved = checked("indexed", asked).quality
    assert moved["moved_mib"] == checked("sync-each", asked).quality["moved_mib"] > 0


class TestValidate:
    @pytest.fixture
    def asked(self):
        return problem("transformer[layers=2]")

    @pytest.fixture
    def made(self, asked):
        return made_by("sync-once", asked)

    def test_an_input_that_lies_otherwise_is_refused(self, asked, made):
        op = next(op for op in made.block.ops if op.type == "matmul")
        made.program.layouts[op.inputs[0]] = ValueLayout(0, 1)
        with pytest.raises(InfeasibleDecision, match=r"needs .* but it is "):
            validate(asked, made)

    def test_a_mirror_that_differs_is_refused(self, asked, made):
        made.block.ops.pop()
        with pytest.raises(InfeasibleDecision, match="edited behind the block"):
            validate(asked, made)

    def test_what_lies_on_another_stage_is_not_read(self, asked, made):
        send = next(op for op in made.block.ops if op.type == "send")
        made.program.layouts[send.inputs[0]] = ValueLayout(1)
        with pytest.raises(InfeasibleDecision, match=r"needs|on another stage"):
            validate(asked, made)


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
def test_what_is_wrong_with_a_workload_is_named(workload, gpus, said):
    with pytest.raises(UsageError) as refused:
        problem(workload, gpus)
    assert said in str(refused.value)


def test_the_problems_of_the_suite_can_be_built():
    for study in FAMILY.studies:
        if not study.large:
            asked = ProblemId.parse(study.problem)
            built = FAMILY.work.build(asked.workload, find_topology(asked.topology, asked.gpus))
            assert FAMILY.work_on(built).facts(built)


def test_variants_stay_with_their_own_programs():
    with pytest.raises(NotApplicable):
        FAMILY.find("indexed").prepared(problem("paddle"))
    with pytest.raises(NotApplicable):
        FAMILY.find("paddle-3.3.1").prepared(problem("transformer"))


def test_hosts_are_stages_and_their_gpus_tensor_parallel():
    assert problem("transformer[layers=4]", 32).facts()["pipeline x tensor"] == "4 x 8"


def resharded_while_others_edit(kind, how, seed: int) -> str:
    rng = random.Random(seed)
    program = transformer(2, 2, 2).copy()
    twin = program.twin

    class Disturbed(how):
        def reshard_op(self, op):
            if rng.random() < 0.2:
                nodes = twin.nodes()
                place = rng.randrange(1, len(nodes))
                read = rng.choice([node for node in nodes[:place] if node.outputsSize()])
                name = f"other{len(nodes)}"
                twin.create("look", [read.outputsAt(0)], [name], {}, nodes[place])
            super().reshard_op(op)

    block = kind(twin)
    Disturbed(program, block, stage=seed % 2).reshard_inputs()
    block.finish()
    if block.is_outdated:
        block.sync()
    block.check()
    twin.graph.lint()
    return str(twin.graph)


@pytest.mark.parametrize("seed", range(8))
def test_what_others_edit_meanwhile_is_taken_in_by_all_that_keep_in_line(seed):
    ends = {resharded_while_others_edit(kind, how, seed) for kind, how in IN_LINE}
    assert len(ends) == 1
    assert ends.pop().count("reshard::look") > 5


def test_one_sync_at_the_end_refuses_a_graph_that_is_edited_meanwhile():
    program = transformer(2, 2, 2).copy()
    block = SyncOnce(program.twin)
    program.twin.create("look", [block.values["x"].handle], ["other"], {})
    with pytest.raises(GraphChanged, match="takes no edits before a sync"):
        Resharder(program, block, stage=0).reshard()


def test_an_op_that_goes_meanwhile_is_told():
    program = transformer(2, 2, 2).copy()
    block = DeltaSync(program.twin)
    (loss,) = [op for op in block.ops if op.type == "loss"]
    program.twin.destroy(loss.node)
    with pytest.raises(GraphChanged, match="was removed behind the block while"):
        Resharder(program, block, stage=1).reshard_input(loss, "l1.out", ValueLayout(1))
