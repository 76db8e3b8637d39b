"""Blocks of ops: Python objects that mirror a C++ graph and edit it.

A sync copies the graph to the block. The classes differ in when and how much they synchronise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.contract import ShardbenchError
from planners.reshard.resharding.graph import (
    Attribute,
    Twin,
    attributes_of,
    inputs_of,
    kind_of,
    outputs_of,
)


class BlockError(ShardbenchError):
    """A block refused an edit; graph and block are unchanged."""


class GraphChanged(BlockError):
    """Other code edited the graph without the block."""


@dataclass(slots=True, eq=False)
class Op:
    """A Python copy of a graph node: its type, and the names of its inputs and outputs."""

    node: Any
    type: str
    inputs: list[str]
    outputs: list[str]

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes, read from the C++ node on each access."""
        return attributes_of(self.node)

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.type}({', '.join(self.inputs)})"


@dataclass(slots=True, eq=False)
class Value:
    """A Python copy of a C++ value, which is an output of an op."""

    name: str
    handle: Any


class Block:
    """A list of ops and a dict of values by name, both copied from the graph by `sync`.

    This class synchronises the whole block before every insertion and after every removal. A
    sync also copies the edits that other code made to the graph.
    """

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self._seen = twin.edits
        self.read()

    @property
    def is_outdated(self) -> bool:
        """Whether other code has edited the graph since this block's last sync or edit."""
        return self.twin.edits != self._seen

    def sync(self) -> None:
        """Synchronise the whole block; observers count calls of `sync`, but not of `read`."""
        self.read()

    def read(self) -> None:
        """Copy every op and every value from the graph."""
        mirrored = {op.node: op for op in self.ops}
        known = self.values
        self.ops, self.values = [], {}
        for node in self.twin.nodes():
            op = mirrored.get(node)
            if op is None:
                op = Op(node, kind_of(node), [], [])
            made = outputs_of(node)
            op.inputs = [value.debugName() for value in inputs_of(node)]
            op.outputs = [value.debugName() for value in made]
            for name, handle in zip(op.outputs, made, strict=True):
                value = known.get(name)
                if value is None or value.handle is not handle:
                    value = Value(name, handle)
                self.values[name] = value
            self.ops.append(op)
        self._seen = self.twin.edits

    def insert(
        self,
        place: int,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
    ) -> Op:
        """Insert an op at index `place`; raises BlockError for an invalid index or name."""
        self.before_edit()
        if not 0 <= place <= len(self.ops):
            raise BlockError(
                f"Op '{kind}' cannot be number {place} of a block that has {len(self.ops)} ops."
            )
        follower = self.ops[place] if place < len(self.ops) else None
        read = [self._readable(name, kind, follower) for name in inputs]
        for name in outputs:
            if name in self.values or outputs.count(name) > 1:
                raise BlockError(f"Op '{kind}' cannot make '{name}', which there is already.")
        before = follower.node if follower else None
        node = self.twin.create(kind, read, outputs, attributes, before)
        op = Op(node, kind, list(inputs), list(outputs))
        for name, handle in zip(outputs, outputs_of(node), strict=True):
            self.values[name] = Value(name, handle)
        self._seen += 1
        self.ops.insert(place, op)
        self.after_insert(op, follower)
        return op

    def _readable(self, name: str, kind: str, follower: Op | None) -> Any:
        if name not in self.values:
            raise BlockError(f"Op '{kind}' reads '{name}', which the block does not have.")
        handle = self.values[name].handle
        if follower is not None and not handle.node().isBefore(follower.node):
            raise BlockError(f"Op '{kind}' reads '{name}', which is made behind its place.")
        return handle

    def rename_input(self, op: Op, old: str, new: str) -> None:
        """Replace an op's input `old` by `new`; raises BlockError if no earlier op makes `new`."""
        handle = self._readable(new, op.type, op)
        for index, name in enumerate(op.inputs):
            if name == old:
                self.twin.replace_input(op.node, index, handle)
                op.inputs[index] = new
                self._seen += 1

    def remove(self, ops: Sequence[Op]) -> None:
        """Remove ops, given in block order; raises BlockError if another op reads an output."""
        self.before_edit()
        leaving = {op.node for op in ops}
        for op in ops:
            for name in op.outputs:
                for use in self.values[name].handle.uses():
                    if use.user not in leaving:
                        raise BlockError(
                            f"Op '{op.type}' cannot be removed: '{name}' is read by "
                            f"'{kind_of(use.user)}'."
                        )
        self.take_out(ops)

    def take_out(self, ops: Sequence[Op]) -> None:
        """Remove ops from the last to the first, with a sync after each."""
        for op in reversed(ops):
            self.destroy(op)
            self.ops.remove(op)
            self.sync()

    def destroy(self, op: Op) -> None:
        """Destroy an op's node in the graph, and delete its outputs from `values`."""
        self.twin.destroy(op.node)
        for name in op.outputs:
            del self.values[name]
        self._seen += 1

    def before_edit(self) -> None:
        """Prepare for an edit: synchronise with the graph."""
        self.catch_up()

    def after_insert(self, op: Op, follower: Op | None) -> None:
        """Called after an op was inserted before `follower`, or at the end if it is None."""

    def finish(self) -> None:
        """Synchronise at the end of a batch of edits."""
        self.catch_up()

    def catch_up(self) -> None:
        """Synchronise with the graph; subclasses may check only a part."""
        self.sync()

    def check(self) -> None:
        """Raise GraphChanged if block and graph differ."""
        graph = Block(self.twin)
        for number, (there, here) in enumerate(zip(graph.ops, self.ops, strict=False)):
            names = [(op.inputs, op.outputs) for op in (there, here)]
            if there.node is not here.node or names[0] != names[1]:
                raise GraphChanged(
                    f"The graph was edited behind the block: op {number} is '{there.type}' "
                    f"of {', '.join(there.inputs) or 'nothing'}, where the block has '{here}'."
                )
        if len(graph.ops) != len(self.ops):
            raise GraphChanged(
                f"The graph was edited behind the block: it has {len(graph.ops)} ops, not "
                f"{len(self.ops)}."
            )
        made, mirrored = (
            {name: value.handle for name, value in block.values.items()} for block in (graph, self)
        )
        if made != mirrored:
            raise GraphChanged("The graph was edited behind the block: it has other values.")


class SyncAfterRemove(Block):
    """Synchronise the whole block before every insertion, and once after a batch of removals."""

    def take_out(self, ops: Sequence[Op]) -> None:
        """Remove the ops from the graph, filter them out of `ops` in one pass, then synchronise."""
        for op in reversed(ops):
            self.destroy(op)
        leaving = set(ops)
        self.ops = [op for op in self.ops if op not in leaving]
        self.after_removals()

    def after_removals(self) -> None:
        """Synchronise after a batch of removals."""
        self.sync()


class SyncOnce(SyncAfterRemove):
    """Synchronise the whole block once, at the end of a batch of insertions.

    An edit relies on the block's indices, so it raises GraphChanged if other code edited the graph.
    """

    def before_edit(self) -> None:
        """Raise GraphChanged if other code has edited the graph since the last sync."""
        if self.is_outdated:
            raise GraphChanged(
                "The graph was edited behind the block, which takes no edits before a sync."
            )


class DeltaSync(SyncAfterRemove):
    """Check only the insertions in a journal; synchronise everything if other code edited.

    Invariant: block and graph are equal except for ops in the journal, so the others need no check.
    """

    def __init__(self, twin: Twin) -> None:
        self.journal: list[tuple[Op, Op | None]] = []
        super().__init__(twin)

    def after_insert(self, op: Op, follower: Op | None) -> None:
        """Add the insertion to the journal."""
        self.journal.append((op, follower))

    def after_removals(self) -> None:
        """Do nothing: removed ops need no check, and removals do not change other ops."""

    def catch_up(self) -> None:
        """Check the ops in the journal, or synchronise everything if other code edited."""
        if self.is_outdated:
            self.sync()
        else:
            self.replay(self.journal)
        self.journal.clear()

    def replay(self, journal: Sequence[tuple[Op, Op | None]]) -> None:
        """Raise GraphChanged if an inserted op was renamed or is not before its follower."""
        for op, follower in journal:
            made = [value.debugName() for value in outputs_of(op.node)]
            is_in_place = follower is None or op.node.isBefore(follower.node)
            if made != op.outputs or not is_in_place:
                raise GraphChanged(f"The graph was edited unseen: '{op}' is not where it was put.")
