"""A block: Python objects that mirror the ops of a program's C++ graph, and edit it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.contract import InfeasibleDecision
from planners.reshard.program import (
    NAMESPACE,
    Attribute,
    Layout,
    Program,
    create,
    inputs_of,
    outputs_of,
)


class Policy(NamedTuple):
    """How a block saves reading all of its graph before each insertion and after each removal."""

    batches_removals: bool = False  # read the graph once after a batch of removals
    batches_insertions: bool = False  # read the graph once after a batch of insertions
    has_journal: bool = False  # after a batch, check only the inserted ops
    is_indexed: bool = False  # a resharder does not scan the block for ops and their readers


SYNC_EACH = Policy()
SYNC_AFTER_REMOVE = SYNC_EACH._replace(batches_removals=True)
SYNC_ONCE = SYNC_AFTER_REMOVE._replace(batches_insertions=True)
DELTA_SYNC = SYNC_ONCE._replace(has_journal=True)
INDEXED = DELTA_SYNC._replace(is_indexed=True)


@dataclass(slots=True, eq=False)
class Op:
    """A Python copy of a graph node: its kind, and the names of its inputs and outputs."""

    node: Any
    kind: str
    inputs: list[str]
    outputs: list[str]

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.kind}({', '.join(self.inputs)})"


class Block:
    """The ops of a program in order and by node, and its C++ values by name.

    No other code may edit the program's graph.
    """

    def __init__(self, program: Program, policy: Policy) -> None:
        self.program, self.policy = program, policy
        self.ops: list[Op] = []
        self.by_node: dict[Any, Op] = {}
        self.handles: dict[str, Any] = {}
        self.journal: list[tuple[Op, Op]] = []  # inserted ops, with the op that followed each
        self.sync()

    def sync(self) -> None:
        """Read every op and every value from the graph; objects for known ops are kept."""
        known = self.by_node
        self.ops, self.by_node, self.handles = [], {}, {}
        for node in list(self.program.graph.nodes()):  # the list keeps ops together in memory
            op = known.get(node)
            if op is None:
                op = Op(node, str(node.kind()).removeprefix(NAMESPACE), [], [])
            made = outputs_of(node)
            op.inputs = [value.debugName() for value in inputs_of(node)]
            op.outputs = [value.debugName() for value in made]
            self.handles.update(zip(op.outputs, made, strict=True))
            self.ops.append(op)
            self.by_node[node] = op

    def needs_of(self, op: Op) -> Sequence[Layout]:
        """Return the required layouts of an op's inputs, in order; empty for inserted ops."""
        return self.program.needs.get(op.outputs[0], ()) if op.outputs else ()

    def insert(
        self,
        place: int,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
    ) -> None:
        """Insert an op before the op at index `place`; its outputs need new names."""
        if not self.policy.batches_insertions:
            self.sync()
        follower = self.ops[place]
        handles = [self.handles[name] for name in inputs]
        node = create(self.program.graph, kind, handles, outputs, attributes, follower.node)
        op = Op(node, kind, list(inputs), list(outputs))
        self.ops.insert(place, op)
        self.by_node[node] = op
        self.handles.update(zip(outputs, outputs_of(node), strict=True))
        if self.policy.has_journal:
            self.journal.append((op, follower))

    def rename_input(self, op: Op, old: str, new: str) -> None:
        """Replace an op's input `old` by `new`, an output of an earlier op."""
        for index, name in enumerate(op.inputs):
            if name == old:
                op.node.replaceInput(index, self.handles[new])
                op.inputs[index] = new

    def finish_insertions(self) -> None:
        """Bring the block in line with the graph after a batch of insertions."""
        if self.policy.has_journal:
            self.replay()
        else:
            self.sync()

    def replay(self) -> None:
        """Check the inserted ops; raise InfeasibleDecision if one is not where it was put."""
        for op, follower in self.journal:
            made = [value.debugName() for value in outputs_of(op.node)]
            if made != op.outputs or not op.node.isBefore(follower.node):
                raise InfeasibleDecision(f"'{op}' is not where the block has put it.")
        self.journal.clear()

    def remove(self, ops: Sequence[Op]) -> None:
        """Remove ops, given in block order; no other op may read their outputs."""
        if not self.policy.batches_insertions:
            self.sync()
        for op in reversed(ops):
            self.destroy(op)
            if not self.policy.batches_removals:
                self.sync()
        if self.policy.has_journal:
            self.ops = [op for op in self.ops if op.node in self.by_node]
        elif self.policy.batches_removals:
            self.sync()

    def destroy(self, op: Op) -> None:
        """Destroy an op's node in the graph, and forget its outputs; `ops` keeps the op."""
        del self.by_node[op.node]
        for name in op.outputs:
            del self.handles[name]
        op.node.destroy()

    def check(self) -> None:
        """Raise InfeasibleDecision if block and graph differ."""
        graph = Block(self.program, self.policy)
        ops, mirrored = ([(op.node, str(op)) for op in block.ops] for block in (graph, self))
        if ops != mirrored or graph.handles != self.handles:
            raise InfeasibleDecision("The block's ops or values differ from those of its graph.")
