"""Insert communication for the inputs of one stage's ops, and remove the ops of other stages.

The inserted ops follow PaddlePaddle/Paddle v2.6.2,
python/paddle/distributed/auto_parallel/static/reshard.py.
"""

from collections.abc import Mapping, Sequence

from planners.reshard.block import Block, Op
from planners.reshard.program import Attribute, Layout, Value


def insert_at(block: Block, places: Sequence[int]) -> None:
    """Insert an op before each of increasing places; the op there then reads its output."""
    values = block.program.values
    for number, place in enumerate(places):
        before = block.ops[place + number - 1].outputs[0]
        made = f"{before}@to:{number}"
        block.insert(place + number, "insert", [before], [made], {"number": number})
        block.rename_input(block.ops[place + number + 1], before, made)
        values[made] = values[before]
    block.finish_insertions()


class Resharder:
    """Reshards the program of a block for the ranks of a pipeline stage."""

    def __init__(self, block: Block, stage: int) -> None:
        self.block, self.stage = block, stage
        self.values = block.program.values
        self._sent: set[tuple[str, int]] = set()
        self._received: dict[str, str] = {}
        self._made = 0
        self._at = 0  # index of the next inserted op
        self._last = 0  # index of the op whose inputs were resharded last

    def reshard(self) -> None:
        """Insert communication, synchronise the block, then remove the ops of other stages."""
        # 1. Reshard the inputs of the program's ops; a conversion may serve several inputs.
        for op in list(self.block.ops):
            for name, need in zip(list(op.inputs), self.block.needs_of(op), strict=True):
                have = self.values[name].layout
                if have == need or self.stage not in (have.stage, need.stage):
                    continue
                if name in op.inputs:
                    self.reshard_input(op, name, need)
        self.block.finish_insertions()
        # 2. Remove the ops of other stages; all inserted ops are on this one.
        others = [
            op
            for op in self.block.ops
            if op.outputs and self.values[op.outputs[0]].layout.stage != self.stage
        ]
        self.block.remove(others)

    def reshard_input(self, op: Op, name: str, need: Layout) -> None:
        """Insert the ops that bring an input to layout `need`; later readers share them."""
        self._at = self.place_of(op)
        have = self.values[name].layout
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

    def _read_instead(self, old: str, new: str, need: Layout) -> None:
        for reader in self.readers(old):
            needs = self.block.needs_of(reader)
            for name, its_need in zip(list(reader.inputs), needs, strict=False):
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
        uses = block.handles[name].uses()  # earlier readers have another need
        return list(dict.fromkeys(block.by_node[use.user] for use in uses))

    def _send(self, name: str, stage: int) -> None:
        if (name, stage) in self._sent:
            return
        self._sent.add((name, stage))
        if self.values[name].dtype == "bool":  # which cannot be sent
            name = self._cast(name, "int64")
        self._insert("send", [name], {"peer": stage}, self.values[name], outputs=0)

    def _receive(self, name: str) -> str:
        if name not in self._received:
            value = self.values[name]
            attributes = {"peer": value.layout.stage, "elements": value.elements}
            sent_as = "int64" if value.dtype == "bool" else value.dtype
            value = Value(value.layout._replace(stage=self.stage), value.elements, sent_as)
            (received,) = self._insert("recv", [name], attributes, value)
            if self.values[name].dtype == "bool":
                received = self._cast(received, "bool")
            self._received[name] = received
        return self._received[name]

    def _cast(self, name: str, dtype: str) -> str:
        value = self.values[name]._replace(dtype=dtype)
        return self._insert("cast", [name], {"dtype": dtype}, value)[0]

    def _transform(self, name: str, have: Layout, need: Layout) -> str:
        """Insert the ops between two shardings on this stage; return the output."""
        _, elements, dtype = self.values[name]
        whole = Value(Layout(self.stage), elements, dtype)
        ranks, ring = self.block.program.tensor_parallel, {"ring": self.stage}
        if have.partial:
            (name,) = self._insert("all_reduce", [name], ring, whole)
        elif have.sharded is not None:
            (name,) = self._insert("all_gather", [name], {**ring, "ranks": ranks}, whole)
            if have.sharded != 0:  # all_gather joins along dimension 0
                parts = self._insert("split", [name], {"dim": 0}, whole, outputs=ranks)
                (name,) = self._insert("concat", parts, {"dim": have.sharded}, whole)
        if need.sharded is not None:
            value = Value(need, elements, dtype)
            (name,) = self._insert("slice", [name], {"dim": need.sharded}, value)
        return name

    def _insert(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Attribute],
        value: Value,
        outputs: int = 1,
    ) -> list[str]:
        """Insert an op after the last inserted one; return the names of its outputs.

        `value` describes each output.
        """
        self._made += 1
        stem = f"{inputs[0].partition('@to:')[0]}@to:{kind}{self._made}"
        names = [stem] if outputs == 1 else [f"{stem}_{index}" for index in range(outputs)]
        reads = [] if kind == "recv" else inputs
        self.block.insert(self._at, kind, reads, names, {**attributes, "stage": self.stage})
        self._at += 1
        self.values.update(dict.fromkeys(names, value))
        return names
