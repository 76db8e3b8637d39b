"""Insert communication for the inputs of one stage's ops, and remove the ops of other stages.

The inserted ops follow PaddlePaddle/Paddle v2.6.2,
python/paddle/distributed/auto_parallel/static/reshard.py.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planners.reshard.block import Attribute, Block, Op
from planners.reshard.program import REPLICATED, DistProgram, ValueKind, ValueLayout


class Resharded(NamedTuple):
    """A program with the layouts of its values, and the block that has edited its graph."""

    program: DistProgram
    block: Block


class Resharder:
    """Reshards a program for the ranks of a pipeline stage."""

    def __init__(self, program: DistProgram, block: Block, stage: int) -> None:
        self.program, self.block, self.stage = program, block, stage
        self._sent: set[tuple[str, int]] = set()
        self._received: dict[str, str] = {}
        self._made = 0
        self._at = 0  # index of the next inserted op
        self._last = 0  # index of the op whose inputs were resharded last

    def reshard(self) -> None:
        """Insert communication, synchronise the block, then remove the ops of other stages."""
        self.reshard_inputs()
        self.block.finish_edits()
        self.remove_others()

    def reshard_inputs(self) -> None:
        """Reshard the inputs of every op of the block, but not of the ops that this inserts."""
        for op in list(self.block.ops):
            self.reshard_op(op)

    def reshard_op(self, op: Op) -> None:
        """Reshard those inputs of an op that lack the required layout."""
        for name, need in zip(list(op.inputs), self._needs(op), strict=False):
            have = self.program.layouts[name]
            if have != need and self.stage in (have.stage, need.stage) and name in op.inputs:
                self.reshard_input(op, name, need)

    def _needs(self, op: Op) -> Sequence[ValueLayout]:
        """Return the required layouts of an op's inputs, in order; empty for inserted ops."""
        return self.program.needs.get(op.outputs[0], ()) if op.outputs else ()

    def reshard_input(self, op: Op, name: str, need: ValueLayout) -> None:
        """Insert the ops that bring an input to layout `need`; later ops that need it share them.

        Raises GraphChanged if other code edited the graph and the block does not allow that.
        """
        if self.block.is_outdated:
            self.block.begin_edit()
            self._last = 0
        self._at = self.place_of(op)
        have = self.program.layouts[name]
        # 1. The stage that has the value sends it.
        if self.stage != need.stage:
            self._send(name, need.stage)
            return
        # 2. The stage that needs the value receives it.
        here = name
        if have.stage != self.stage:
            here, have = self._receive(name), have._replace(stage=self.stage)
            self._read_instead(name, here, have)
        # 3. Its ranks change the sharding.
        if have != need:
            self._read_instead(name, self._transform(here, have, need), need)

    def _read_instead(self, old: str, new: str, need: ValueLayout) -> None:
        for reader in self.readers(old):
            for name, its_need in zip(list(reader.inputs), self._needs(reader), strict=False):
                if name == old and its_need == need:
                    self.block.rename_input(reader, old, new)

    def place_of(self, op: Op) -> int:
        """Return the index of an op in the block."""
        ops = self.block.ops
        if not self.block.policy.is_indexed:  # as in Paddle: search a copy of the list
            return next(place for place, other in enumerate(list(ops)) if other is op)
        # Ops are resharded in block order, so an index is never below the last one.
        while ops[self._last] is not op:
            self._last += 1
        return self._last

    def readers(self, name: str) -> Sequence[Op]:
        """Return the ops that read a value, from the index of the next inserted op on."""
        block = self.block
        if not block.policy.is_indexed:
            return [op for op in block.ops[self._at :] if name in op.inputs]
        uses = block.values[name].uses()  # earlier readers have another need
        return list(dict.fromkeys(block.by_node[use.user] for use in uses))

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
        self._insert("send", [name], {"peer": stage}, self.program.layouts[name], outputs=0)

    def _receive(self, name: str) -> str:
        if name not in self._received:
            have, kind = self.program.layouts[name], self.program.kinds[name]
            attributes = {"peer": have.stage, "elements": kind.elements}
            there = have._replace(stage=self.stage)
            (received,) = self._insert("recv", [name], attributes, there, value=_carried(kind))
            if kind.is_bool:
                received = self._cast(received, is_bool=True)
            self._received[name] = received
        return self._received[name]

    def _cast(self, name: str, is_bool: bool) -> str:
        """Insert a cast to bool, or to int64 because bool cannot be sent; return its output."""
        kind = self.program.kinds[name]
        kind = kind._replace(item_bytes=1, is_bool=True) if is_bool else _carried(kind)
        attributes = {"dtype": "bool" if is_bool else "int64"}
        return self._insert("cast", [name], attributes, self.program.layouts[name], value=kind)[0]

    def _transform(self, name: str, have: ValueLayout, need: ValueLayout) -> str:
        """Insert the ops between two shardings on this stage; return the output."""
        whole, ranks = ValueLayout(self.stage), self.program.tensor_parallel
        if have.partial:
            (name,) = self._insert("all_reduce", [name], {"ring": self.stage}, whole)
        elif have.sharded != REPLICATED:
            attributes = {"ring": self.stage, "ranks": ranks}
            (name,) = self._insert("all_gather", [name], attributes, whole)
            if have.sharded != 0:  # all_gather joins along dimension 0
                parts = self._insert("split", [name], {"dim": 0}, whole, outputs=ranks)
                (name,) = self._insert("concat", parts, {"dim": have.sharded}, whole)
        if need.sharded != REPLICATED:
            (name,) = self._insert("slice", [name], {"dim": need.sharded}, need)
        return name

    def _insert(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Attribute],
        layout: ValueLayout,
        outputs: int = 1,
        value: ValueKind | None = None,
    ) -> list[str]:
        """Insert an op after the last inserted one; return the names of its outputs.

        `layout` and `value` are those of the outputs; None is the first input's kind of value.
        """
        self._made += 1
        stem = f"{inputs[0].partition('@to:')[0]}@to:{kind}{self._made}"
        names = [stem] if outputs == 1 else [f"{stem}_{index}" for index in range(outputs)]
        reads = [] if kind == "recv" else inputs
        self.block.insert(self._at, kind, reads, names, {**attributes, "stage": self.stage})
        self._at += 1
        for name in names:
            self.program.layouts[name] = layout
            self.program.kinds[name] = value or self.program.kinds[inputs[0]]
        return names


def _carried(kind: ValueKind) -> ValueKind:
    """Return the kind of a value as sent between stages: int64 instead of bool."""
    return kind._replace(item_bytes=8, is_bool=False) if kind.is_bool else kind
