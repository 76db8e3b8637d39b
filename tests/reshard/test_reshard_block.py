"""A block mirrors its graph: refused edits change neither, and edits by others are noticed."""

import pytest
from hypothesis import given, strategies as st

from planners.reshard.resharding.block import (
    Block,
    BlockError,
    DeltaSync,
    GraphChanged,
    SyncAfterRemove,
    SyncOnce,
)
from planners.reshard.resharding.graph import Twin

ALL = (Block, SyncAfterRemove, SyncOnce, DeltaSync)
IN_LINE = (Block, SyncAfterRemove, DeltaSync)
"""Those that take in what others have edited before they go on."""


def chain(length: int) -> Twin:
    twin = Twin()
    last = twin.create("feed", [], ["v0"], {})
    for number in range(1, length):
        last = twin.create("step", [last.outputsAt(0)], [f"v{number}"], {"number": number})
    return twin


def texts(block: Block) -> list[str]:
    return [str(op) for op in block.ops]


@pytest.fixture(params=ALL)
def block(request) -> Block:
    return request.param(chain(4))


def test_a_block_mirrors_ops_values_and_attributes(block):
    assert texts(block) == ["v0 = feed()", "v1 = step(v0)", "v2 = step(v1)", "v3 = step(v2)"]
    assert list(block.values) == ["v0", "v1", "v2", "v3"]
    assert block.ops[2].attributes == {"number": 2}
    block.check()


def test_an_op_is_inserted_read_and_removed(block):
    new = block.insert(2, "slice", ["v1"], ["part"], {"dim": 1, "of": "tp", "sizes": (2, 3)})
    block.rename_input(block.ops[3], "v1", "part")
    block.finish()
    assert texts(block)[1:4] == ["v1 = step(v0)", "part = slice(v1)", "v2 = step(part)"]
    assert new.attributes == {"dim": 1, "of": "tp", "sizes": (2, 3)}
    block.check()
    block.rename_input(block.ops[3], "part", "v0")
    block.remove([new])
    block.finish()
    assert texts(block)[1:3] == ["v1 = step(v0)", "v2 = step(v0)"]
    assert "part" not in block.values
    block.check()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda block: block.insert(5, "slice", ["v0"], ["new"], {}), "cannot be number 5"),
        (lambda block: block.insert(-1, "slice", ["v0"], ["new"], {}), "cannot be number -1"),
        (lambda block: block.insert(2, "slice", ["nothing"], ["new"], {}), "reads 'nothing'"),
        (lambda block: block.insert(2, "slice", ["v3"], ["new"], {}), "reads 'v3'"),
        (lambda block: block.insert(2, "slice", ["v0"], ["v1"], {}), "cannot make 'v1'"),
        (lambda block: block.insert(2, "split", ["v0"], ["new", "new"], {}), "cannot make 'new'"),
        (lambda block: block.rename_input(block.ops[1], "v0", "v3"), "reads 'v3'"),
        (lambda block: block.remove(block.ops[1:2]), "'v1' is read by 'step'"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(block, edit, said):
    before, graph = texts(block), str(block.twin.graph)
    with pytest.raises(BlockError, match=said):
        edit(block)
    block.finish()
    assert (texts(block), str(block.twin.graph)) == (before, graph)
    block.check()


def edit_behind(block: Block) -> None:
    block.twin.create("neg", [block.values["v0"].handle], ["other"], {}, block.ops[1].node)


def test_a_graph_that_was_edited_behind_the_block_is_found(block):
    edit_behind(block)
    before = texts(block)
    with pytest.raises(GraphChanged, match=r"op 1 is 'neg' of v0, .* 'v1 = step\(v0\)'"):
        block.check()
    assert texts(block) == before
    block.sync()
    assert texts(block)[1] == "other = neg(v0)"
    block.check()


@pytest.mark.parametrize("kind", IN_LINE)
def test_what_others_edit_is_taken_in_before_the_next_insertion(kind):
    block = kind(chain(4))
    edit_behind(block)
    block.insert(2, "slice", ["other"], ["new"], {})
    block.finish()
    assert texts(block)[:4] == [
        *("v0 = feed()", "other = neg(v0)", "new = slice(other)", "v1 = step(v0)")
    ]
    block.check()


def test_one_sync_at_the_end_refuses_a_graph_that_others_edit():
    block = SyncOnce(chain(4))
    edit_behind(block)
    graph = str(block.twin.graph)
    for edit in (
        lambda: block.insert(2, "slice", ["v0"], ["new"], {}),
        lambda: block.remove(block.ops[3:]),
    ):
        with pytest.raises(GraphChanged, match="no edits before a sync"):
            edit()
    assert str(block.twin.graph) == graph
    block.sync()
    block.insert(2, "slice", ["other"], ["new"], {})
    block.finish()
    block.check()


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "rename", "remove", "behind", "destroy behind"]),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=30,
)


def apply(block: Block, edits: list[tuple[str, int, int]]) -> None:
    """Edit a block and its graph; the numbers in `edits` mean the same for every kind of block."""
    for count, (what, first, second) in enumerate(edits):
        nodes = block.twin.nodes()
        if what == "behind":
            place = first % len(nodes)
            read = [nodes[second % place].outputsAt(0)] if place else []
            block.twin.create("neg", read, [f"b{count}"], {}, nodes[place])
            continue
        unread = [node for node in nodes if not any(o.uses() for o in [node.outputsAt(0)])]
        if what == "destroy behind" and len(nodes) > 3:
            block.twin.destroy(unread[first % len(unread)])
            continue
        if what == "insert":
            # As a caller does that has just looked: places and names are those of the graph.
            place = 1 + first % len(nodes)
            name = nodes[second % place].outputsAt(0).debugName()
            block.insert(place, "slice", [name], [f"n{count}"], {"count": count})
        elif what == "rename":
            block.before_edit()
            op = block.ops[first % len(block.ops)]
            if op.inputs:
                makers = block.ops[: block.ops.index(op)]
                block.rename_input(op, op.inputs[0], makers[second % len(makers)].outputs[0])
        elif what == "remove" and len(nodes) > 3:
            block.before_edit()
            gone = unread[first % len(unread)]
            block.remove([op for op in block.ops if op.node is gone])
    block.finish()


@given(edits=EDITS)
def test_all_that_keep_in_line_end_with_the_same_graph_and_mirror(edits):
    ends = []
    for kind in IN_LINE:
        block = kind(chain(6))
        apply(block, edits)
        if block.is_outdated:
            block.sync()
        block.check()
        block.twin.graph.lint()
        ends.append((str(block.twin.graph), texts(block)))
    assert ends[0] == ends[1] == ends[2]


@given(edits=EDITS.map(lambda edits: [e for e in edits if "behind" not in e[0]]))
def test_one_sync_at_the_end_is_enough_where_nobody_else_edits(edits):
    ends = []
    for kind in (Block, SyncOnce):
        block = kind(chain(6))
        apply(block, edits)
        block.check()
        ends.append((str(block.twin.graph), texts(block)))
    assert ends[0] == ends[1]


def test_an_unseen_edit_is_found_by_the_journal_where_it_moves_what_it_names():
    block = DeltaSync(chain(4))
    op = block.insert(2, "slice", ["v0"], ["new"], {})
    op.node.moveAfter(block.ops[3].node)  # not through the twin, so that nobody counts it
    with pytest.raises(GraphChanged, match=r"'new = slice\(v0\)' is not where it was put"):
        block.finish()
