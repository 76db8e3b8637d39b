"""Insert communication for the inputs of one stage's ops, and remove the ops of other stages.

The inserted ops follow PaddlePaddle/Paddle v2.6.2,
python/paddle/distributed/auto_parallel/static/reshard.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planners.reshard.resharding.block import Block, GraphChanged, Op
from planners.reshard.resharding.graph import Attribute
from planners.reshard.resharding.program import REPLICATED, DistProgram, ValueKind, ValueLayout

_NOWHERE = ValueLayout(-1)
"""The layout of an op without an output."""


@dataclass(frozen=True, slots=True)
class Resharded:
    """A resharded block, and the program with the layouts of its values."""

    block: Block
    program: DistProgram


class Resharder:
    """Reshard a program for the ranks of a pipeline stage; finds ops by scans of the block."""

    def __init__(self, program: DistProgram, block: Block, stage: int) -> None:
        self.program = program
        self.block = block
        self.stage = stage
        self._sent: set[tuple[str, int]] = set()
        self._received: dict[str, str] = {}
        self._made = 0
        self._at = 0
        """The place of the next inserted op."""

    def reshard(self) -> Resharded:
        """Insert communication, synchronise the block, then remove the ops of other stages."""
        self.reshard_inputs()
        self.block.finish()
        self.remove_others()
        return Resharded(self.block, self.program)

    def reshard_inputs(self) -> None:
        """Reshard the inputs of every op of the block, but not of the ops that this inserts."""
        for op in list(self.block.ops):
            self.reshard_op(op)

    def reshard_op(self, op: Op) -> None:
        """Reshard those inputs of an op that lack the required layout."""
        for name, need in zip(list(op.inputs), self.needs(op), strict=False):
            have = self.program.layouts[name]
            if have != need and self.stage in (have.stage, need.stage) and name in op.inputs:
                self.reshard_input(op, name, need)

    def needs(self, op: Op) -> Sequence[ValueLayout]:
        """Return the required layouts of an op's inputs, in order; empty for inserted ops."""
        return self.program.needs.get(op.outputs[0], ()) if op.outputs else ()

    def reshard_input(self, op: Op, name: str, need: ValueLayout) -> None:
        """Insert the ops that bring an input to layout `need`; later ops that need it share them.

        Raises GraphChanged if other code edited the graph and the block does not allow that.
        """
        if self.block.is_outdated:
            self.block.before_edit()
            self.look_again(op)
        self._at = self.place_of(op)
        have = self.program.layouts[name]
        if self.stage != need.stage:
            self._send(name, need.stage)
            return
        here = self._receive(name) if have.stage != self.stage else name
        have = have._replace(stage=self.stage)
        if here != name:
            self._read_instead(name, here, have)
        if have != need:
            self._read_instead(name, self._transform(here, have, need), need)

    def _read_instead(self, old: str, new: str, need: ValueLayout) -> None:
        for reader in self.readers(old, self._at):
            for name, its_need in zip(list(reader.inputs), self.needs(reader), strict=False):
                if name == old and its_need == need:
                    self.block.rename_input(reader, old, new)

    def place_of(self, op: Op) -> int:
        """Return the index of an op in the block; raises GraphChanged if it is missing."""
        for place, candidate in enumerate(list(self.block.ops)):
            if candidate is op:
                return place
        raise GraphChanged(f"Op '{op}' was removed behind the block while it was resharded.")

    def look_again(self, op: Op) -> None:
        """Discard cached indices after an edit by other code; this class caches none."""

    def readers(self, name: str, place: int) -> Iterable[Op]:
        """Return the ops that read a value, from index `place` on."""
        return [op for op in self.block.ops[place:] if name in op.inputs]

    def remove_others(self) -> None:
        """Remove the program's ops of other stages, but no op that other code inserted."""
        layouts, needs = self.program.layouts, self.program.needs
        self.block.remove(
            [
                op
                for op in self.block.ops
                if op.outputs
                and op.outputs[0] in needs
                and layouts[op.outputs[0]].stage != self.stage
            ]
        )

    def _send(self, name: str, stage: int) -> None:
        if (name, stage) in self._sent:
            return
        self._sent.add((name, stage))
        if self.program.kinds[name].is_bool:
            name = self._cast(name, is_bool=False)
        self._insert("send", [name], 0, {"peer": stage})

    def _receive(self, name: str) -> str:
        known = self._received.get(name)
        if known is None:
            have, kind = self.program.layouts[name], self.program.kinds[name]
            attributes = {"peer": have.stage, "elements": kind.elements}
            there = have._replace(stage=self.stage)
            (known,) = self._insert("recv", [name], 1, attributes, there, _carried(kind))
            if kind.is_bool:
                known = self._cast(known, is_bool=True)
            self._received[name] = known
        return known

    def _cast(self, name: str, is_bool: bool) -> str:
        """Insert a cast to bool, or to int64 because bool cannot be sent; return its output."""
        kind = self.program.kinds[name]
        kind = kind._replace(item_bytes=1, is_bool=True) if is_bool else _carried(kind)
        attributes = {"dtype": "bool" if is_bool else "int64"}
        return self._insert("cast", [name], 1, attributes, self.program.layouts[name], kind)[0]

    def _transform(self, name: str, have: ValueLayout, need: ValueLayout) -> str:
        whole = ValueLayout(self.stage)
        if have.partial:
            (name,) = self._insert("all_reduce", [name], 1, {"ring": self.stage}, whole)
        elif have.sharded != REPLICATED:
            name = self._gather(name, have.sharded)
        if need.sharded != REPLICATED:
            (name,) = self._insert("slice", [name], 1, {"dim": need.sharded}, need)
        return name

    def _gather(self, name: str, dim: int) -> str:
        """Gather along `dim`: all_gather works on dimension 0, so split and concat follow it."""
        whole, ranks = ValueLayout(self.stage), self.program.tensor_parallel
        attributes = {"ring": self.stage, "ranks": ranks}
        (name,) = self._insert("all_gather", [name], 1, attributes, whole)
        if dim == 0:
            return name
        parts = self._insert("split", [name], ranks, {"dim": 0}, whole)
        (name,) = self._insert("concat", parts, 1, {"dim": dim}, whole)
        return name

    def _insert(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: int,
        attributes: Mapping[str, Attribute],
        layout: ValueLayout = _NOWHERE,
        value: ValueKind | None = None,
    ) -> list[str]:
        """Insert an op after the last inserted one; return the names of its outputs.

        `value` is the kind of the outputs, by default the kind of the first input."""
        self._made += 1
        stem = f"{inputs[0].partition('@to:')[0]}@to:{kind}{self._made}"
        names = [stem] if outputs == 1 else [f"{stem}_{index}" for index in range(outputs)]
        reads = [] if kind == "recv" else inputs
        op = self.block.insert(self._at, kind, reads, names, {**attributes, "stage": self.stage})
        self._at += 1
        for name in names:
            self.program.layouts[name] = layout
            self.program.kinds[name] = value or self.program.kinds[inputs[0]]
        self.inserted(op)
        return names

    def inserted(self, op: Op) -> None:
        """Called after each inserted op; this class does nothing."""


class IndexedResharder(Resharder):
    """Insert the same ops without scans: search indices from the last one, get readers from C++.

    Invariant: ops are resharded in block order, so an op's index is never below the last one.
    """

    def __init__(self, program: DistProgram, block: Block, stage: int) -> None:
        super().__init__(program, block, stage)
        self._place = 0
        self._by_node: dict[Any, Op] = {op.node: op for op in block.ops}

    def place_of(self, op: Op) -> int:
        """Return the index of an op, searched from the last returned index."""
        while self.block.ops[self._place] is not op:
            self._place += 1
        return self._place

    def look_again(self, op: Op) -> None:
        """Search the whole block for the index of `op`, and map nodes to ops again."""
        self._place = super().place_of(op)
        self._by_node = {mirror.node: mirror for mirror in self.block.ops}

    def readers(self, name: str, _: int) -> Iterable[Op]:
        """Return the ops that read a value, from the uses that the C++ value records."""
        uses = self.block.values[name].handle.uses()
        return list(dict.fromkeys(self._by_node[use.user] for use in uses))

    def inserted(self, op: Op) -> None:
        """Map the new op's node to the op."""
        self._by_node[op.node] = op


def _carried(kind: ValueKind) -> ValueKind:
    """Return the kind of a value as sent between stages: int64 instead of bool."""
    return kind._replace(item_bytes=8, is_bool=False) if kind.is_bool else kind
