"""A block of ops: Python objects that mirror a C++ graph, edited from here and brought in line."""

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
    """An edit that a block cannot take; graph and mirror stay as they were."""


class GraphChanged(BlockError):
    """The graph was edited behind the block's back."""


@dataclass(slots=True, eq=False)
class Op:
    """The mirror of a node: what it is, and the names of the values that it reads and makes."""

    node: Any
    type: str
    inputs: list[str]
    outputs: list[str]

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes, which C++ alone keeps."""
        return attributes_of(self.node)

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.type}({', '.join(self.inputs)})"


@dataclass(slots=True, eq=False)
class Value:
    """The mirror of what an op makes."""

    name: str
    handle: Any


class Block:
    """Ops in order and values by name, with a sync that reconciles both with the graph.

    Before an insertion and after a removal the whole block is reconciled, whatever changed. What
    was edited behind the block's back is taken in by the next sync.
    """

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.ops: list[Op] = []
        self.values: dict[str, Value] = {}
        self._seen = twin.edits
        self.read()

    @property
    def is_outdated(self) -> bool:
        """Whether somebody else has edited the graph since this block looked or edited it."""
        return self.twin.edits != self._seen

    def sync(self) -> None:
        """Bring the block in line: take in whatever is different in the graph."""
        self.read()

    def read(self) -> None:
        """Look at every op and every value of the graph and mirror them."""
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
        """Insert an op as number `place`; raises BlockError for a place or name that cannot be."""
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
        """Let an op read `new` wherever it reads `old`; raises BlockError where it cannot."""
        handle = self._readable(new, op.type, op)
        for index, name in enumerate(op.inputs):
            if name == old:
                self.twin.replace_input(op.node, index, handle)
                op.inputs[index] = new
                self._seen += 1

    def remove(self, ops: Sequence[Op]) -> None:
        """Remove ops in their order; raises BlockError where one that stays reads theirs."""
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
        """Take ops out that nobody reads, the last one first, and bring the block in line."""
        for op in reversed(ops):
            self.destroy(op)
            self.ops.remove(op)
            self.sync()

    def destroy(self, op: Op) -> None:
        """End an op's node and forget what it makes."""
        self.twin.destroy(op.node)
        for name in op.outputs:
            del self.values[name]
        self._seen += 1

    def before_edit(self) -> None:
        """Make sure that the mirror is what the graph is."""
        self.catch_up()

    def after_insert(self, op: Op, follower: Op | None) -> None:
        """Note an insertion in front of another op, or at the end."""

    def finish(self) -> None:
        """Bring the block in line at the end of a batch of edits."""
        self.catch_up()

    def catch_up(self) -> None:
        """Bring the block in line before or after edits."""
        self.sync()

    def check(self) -> None:
        """Raise GraphChanged where the mirror is not what the graph is."""
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
