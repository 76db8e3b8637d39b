"""A block of ops: Python objects that mirror a C++ graph and edit it.

The graph is a torch._C.Graph. It does not count its edits, so all code that edits it has to use the
methods of `Twin`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from harness.contract import ShardbenchError

Attribute = str | int | tuple[int, ...]
NAMESPACE = "reshard::"


class GraphChanged(ShardbenchError):
    """Other code edited the graph without the block."""


class Twin:
    """A torch C++ graph; `edits` counts all edits, by blocks and by other code."""

    def __init__(self) -> None:
        import torch  # here: listing variants must be quick, and work without torch

        self.graph: Any = torch._C.Graph()
        self.edits = 0

    def copy(self) -> "Twin":
        """Return a new twin with a copy of the graph, and no edits counted."""
        other = Twin()
        other.graph = self.graph.copy()
        return other

    def nodes(self) -> list[Any]:
        """Return the nodes in order; a node is the same Python object while it is referenced."""
        return list(self.graph.nodes())

    def create(
        self,
        kind: str,
        inputs: Sequence[Any],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
        before: Any = None,
    ) -> Any:
        """Create a node before the node `before`, or at the end, and return it.

        `inputs` are C++ values. Torch renames an output if its name is taken.
        """
        node = self.graph.create(NAMESPACE + kind, list(inputs), len(outputs))
        for name, value in attributes.items():
            if isinstance(value, str):
                node.s_(name, value)
            elif isinstance(value, int):
                node.i_(name, value)
            else:
                node.is_(name, list(value))
        if before is None:
            self.graph.appendNode(node)
        else:
            node.insertBefore(before)
        for value, name in zip(outputs_of(node), outputs, strict=True):
            value.setDebugName(name)
        self.edits += 1
        return node

    def destroy(self, node: Any) -> None:
        """Destroy a node; no op may read its outputs, and callers must not use the node again."""
        node.destroy()
        self.edits += 1

    def replace_input(self, node: Any, index: int, value: Any) -> None:
        """Replace the input at `index` of a node by `value`."""
        node.replaceInput(index, value)
        self.edits += 1


def inputs_of(node: Any) -> list[Any]:
    """Return the input values of a node; `node.inputs()` takes fifty times as long."""
    return [node.inputsAt(index) for index in range(node.inputsSize())]


def outputs_of(node: Any) -> list[Any]:
    """Return the output values of a node."""
    return [node.outputsAt(index) for index in range(node.outputsSize())]


def attributes_of(node: Any) -> dict[str, Attribute]:
    """Return the attributes of a node by name, lists as tuples."""
    attributes: dict[str, Attribute] = {}
    for name in node.attributeNames():
        value = getattr(node, node.kindOf(name))(name)
        attributes[name] = tuple(value) if isinstance(value, list) else value
    return attributes


@dataclass(slots=True, eq=False)
class Op:
    """A Python copy of a graph node: its type, and the names of its inputs and outputs."""

    node: Any
    type: str
    inputs: list[str]
    outputs: list[str]

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.type}({', '.join(self.inputs)})"


class Policy(NamedTuple):
    """When a block reads the whole graph, and how a resharder finds ops in it.

    By default a block reads the whole graph before every insertion and after every removal.

    Attributes:
        batches_removals: read it once after a batch of removals.
        batches_insertions: read it once after a batch of insertions. In between, edits rely on the
            block's indices, and raise GraphChanged if other code has edited the graph.
        has_journal: check only the inserted ops, and read the whole graph only after edits by other
            code. Invariant: block and graph are equal except for the ops in the journal.
        is_indexed: find ops and their readers without scans of the block.
    """

    batches_removals: bool = False
    batches_insertions: bool = False
    has_journal: bool = False
    is_indexed: bool = False


class Block:
    """The ops of a graph in order and by node, and its C++ values by name, as `sync` read them."""

    def __init__(self, twin: Twin, policy: Policy) -> None:
        self.twin, self.policy = twin, policy
        self.ops: list[Op] = []
        self.by_node: dict[Any, Op] = {}
        self.values: dict[str, Any] = {}
        self.journal: list[tuple[Op, Op]] = []  # inserted ops, with the op that followed each
        self._seen_edits = 0
        self.sync()

    @property
    def is_outdated(self) -> bool:
        """Whether other code has edited the graph since this block's last sync or edit."""
        return self.twin.edits != self._seen_edits

    def sync(self) -> None:
        """Read every op and every value from the graph."""
        known = self.by_node
        self.ops, self.by_node, self.values = [], {}, {}
        for node in self.twin.nodes():
            op = known.get(node)
            if op is None:
                op = Op(node, str(node.kind()).removeprefix(NAMESPACE), [], [])
            made = outputs_of(node)
            op.inputs = [value.debugName() for value in inputs_of(node)]
            op.outputs = [value.debugName() for value in made]
            self.values.update(zip(op.outputs, made, strict=True))
            self.ops.append(op)
            self.by_node[node] = op
        self.journal.clear()
        self._seen_edits = self.twin.edits

    def insert(
        self,
        place: int,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
    ) -> Op:
        """Insert an op before the op at index `place`; its outputs need new names."""
        self.begin_edit()
        follower = self.ops[place]
        read = [self.values[name] for name in inputs]
        node = self.twin.create(kind, read, outputs, attributes, follower.node)
        op = Op(node, kind, list(inputs), list(outputs))
        self.values.update(zip(outputs, outputs_of(node), strict=True))
        self.ops.insert(place, op)
        self.by_node[node] = op
        self._seen_edits += 1
        if self.policy.has_journal:
            self.journal.append((op, follower))
        return op

    def rename_input(self, op: Op, old: str, new: str) -> None:
        """Replace an op's input `old` by `new`, an output of an earlier op."""
        for index, name in enumerate(op.inputs):
            if name == old:
                self.twin.replace_input(op.node, index, self.values[new])
                op.inputs[index] = new
                self._seen_edits += 1

    def remove(self, ops: Sequence[Op]) -> None:
        """Remove ops, given in block order; no other op may read their outputs."""
        self.begin_edit()
        for op in reversed(ops):
            self.destroy(op)
            if not self.policy.batches_removals:
                self.sync()
        if self.policy.has_journal:  # removals do not change other ops, so these need no check
            self.ops = [op for op in self.ops if op.node in self.by_node]
        elif self.policy.batches_removals:
            self.sync()

    def destroy(self, op: Op) -> None:
        """Destroy an op's node in the graph, and forget its outputs; `ops` keeps the op."""
        del self.by_node[op.node]
        self.twin.destroy(op.node)
        for name in op.outputs:
            del self.values[name]
        self._seen_edits += 1

    def begin_edit(self) -> None:
        """Prepare for an edit; raises GraphChanged if the policy forbids edits by other code."""
        if not self.policy.batches_insertions:
            self.catch_up()
        elif self.is_outdated:
            raise GraphChanged(
                "The graph was edited behind the block, which takes no edits before a sync."
            )

    def finish_edits(self) -> None:
        """Synchronise after a batch of insertions."""
        self.catch_up()

    def catch_up(self) -> None:
        """Read the whole graph, or only check the journal if that is enough."""
        if self.policy.has_journal and not self.is_outdated:
            self.replay()
            self.journal.clear()
        else:
            self.sync()

    def replay(self) -> None:
        """Raise GraphChanged if an op in the journal was renamed or is not before its follower."""
        for op, follower in self.journal:
            made = [value.debugName() for value in outputs_of(op.node)]
            if made != op.outputs or not op.node.isBefore(follower.node):
                raise GraphChanged(f"The graph was edited unseen: '{op}' is not where it was put.")

    def check(self) -> None:
        """Raise GraphChanged if block and graph differ."""
        graph = Block(self.twin, self.policy)
        there, here = ([(op.node, str(op)) for op in block.ops] for block in (graph, self))
        pairs = zip_longest(there, here, fillvalue=(None, "missing"))
        for number, (real, mirrored) in enumerate(pairs):
            if real != mirrored:
                raise GraphChanged(
                    f"The graph was edited behind the block: op {number} is '{real[1]}', "
                    f"where the block has '{mirrored[1]}'."
                )
        if graph.values != self.values:
            raise GraphChanged("The graph was edited behind the block: it has other values.")
