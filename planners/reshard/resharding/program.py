"""Serial programs with dist attributes: a transformer stack in a sequence-parallel Megatron layout.

Every op runs on the ranks of one pipeline stage and says how each of its inputs must lie there; a
resharder has to see to it. Forward, backward and the optimizer's ops are in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planners.reshard.resharding.graph import Twin
from planners.reshard.resharding.layouts import REPLICATED, Kind, Layout

HIDDEN, SEQUENCE, BATCH = 64, 32, 4
_SEQUENCE_DIM, _HIDDEN_DIM = 1, 2
_TOKENS = Kind(BATCH * SEQUENCE * HIDDEN, 4)
_WIDE = Kind(BATCH * SEQUENCE * HIDDEN * 4, 4)
_SCORES = Kind(BATCH * SEQUENCE * SEQUENCE, 4)
_MASK = Kind(SEQUENCE * SEQUENCE, 1, is_bool=True)


@dataclass(slots=True)
class Program:
    """A graph and its dist attributes.

    `layouts` and `kinds` are by value, `needs` by the first output of an op: how its inputs must
    lie, in order.
    """

    twin: Twin
    stages: int
    tensor_parallel: int
    layouts: dict[str, Layout] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    needs: dict[str, tuple[Layout, ...]] = field(default_factory=dict)

    def copy(self) -> "Program":
        """Return a program with a graph and layouts of its own."""
        return replace(
            self,
            twin=self.twin.copy(),
            layouts=dict(self.layouts),
            kinds=dict(self.kinds),
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """An input of an op: the value, and which dimension the ranks must share."""

    name: str
    sharded: int = REPLICATED


@dataclass(frozen=True, slots=True)
class _Forward:
    """An op of the forward pass, as its backward op needs to know it."""

    kind: str
    stage: int
    reads: tuple[_Read, ...]
    output: str


class _Builder:
    """Appends ops to a program, and remembers what the backward pass needs."""

    def __init__(self, stages: int, tensor_parallel: int) -> None:
        self.program = Program(Twin(), stages, tensor_parallel)
        self.parameters: list[str] = []
        self._handles: dict[str, object] = {}
        self._forward: list[_Forward] = []

    def add(
        self,
        kind: str,
        stage: int,
        reads: Sequence[_Read],
        outputs: Sequence[tuple[str, Layout, Kind]],
    ) -> None:
        """Append an op."""
        program = self.program
        node = program.twin.create(
            kind,
            [self._handles[read.name] for read in reads],
            [name for name, _, _ in outputs],
            {"stage": stage},
        )
        for index, (name, layout, value) in enumerate(outputs):
            self._handles[name] = node.outputsAt(index)
            program.layouts[name] = layout
            program.kinds[name] = value
        program.needs[outputs[0][0]] = tuple(Layout(stage, read.sharded) for read in reads)

    def parameter(self, name: str, stage: int, sharded: int = REPLICATED, size: int = 1) -> _Read:
        """Append a parameter of size x HIDDEN x HIDDEN elements and return how it is read."""
        self.add(
            "parameter", stage, (), [(name, Layout(stage, sharded), Kind(size * HIDDEN**2, 4))]
        )
        self.parameters.append(name)
        return _Read(name, sharded)

    def forward(
        self,
        kind: str,
        stage: int,
        reads: Sequence[_Read],
        output: str,
        value: Kind,
        sharded: int = REPLICATED,
        partial: bool = False,
    ) -> str:
        """Append an op of the forward pass that makes one value, and return its name."""
        self.add(kind, stage, reads, [(output, Layout(stage, sharded, partial), value)])
        self._forward.append(_Forward(kind, stage, tuple(reads), output))
        return output

    def backward(self, loss: str) -> None:
        """Append the backward ops, last first, and an optimizer op for every parameter."""
        gradients: dict[str, list[str]] = {}
        stage = self.program.layouts[loss].stage
        start = f"{loss}@grad"
        self.add("fill", stage, (), [(start, Layout(stage), self.program.kinds[loss])])
        gradients[loss] = [start]
        for op in reversed(self._forward):
            self._backward_of(op, gradients)
        for name in self.parameters:
            held = self.program.layouts[name]
            reads = [_Read(name, held.sharded), _Read(self._summed(name, gradients), held.sharded)]
            self.add("adam", held.stage, reads, [(f"{name}@new", held, self.program.kinds[name])])

    def _backward_of(self, op: _Forward, gradients: dict[str, list[str]]) -> None:
        program = self.program
        sharded = program.layouts[op.output].sharded
        reads = [_Read(self._summed(op.output, gradients), sharded), *op.reads]
        outputs = []
        for read in op.reads:
            if program.kinds[read.name].is_bool or program.needs.get(read.name) is None:
                continue
            name = f"{read.name}@grad{len(gradients.setdefault(read.name, []))}"
            # What every rank has read whole gets a share of its gradient from each of them.
            partial = read.sharded == REPLICATED
            layout = Layout(op.stage, read.sharded, partial)
            outputs.append((name, layout, program.kinds[read.name]))
            gradients[read.name].append(name)
        if outputs:
            self.add(f"{op.kind}_grad", op.stage, reads, outputs)

    def _summed(self, name: str, gradients: dict[str, list[str]]) -> str:
        """Return the gradient of a value, the sum where it was read several times."""
        parts = gradients[name]
        if len(parts) > 1:
            held = self.program.layouts[name]
            total = f"{name}@grad"
            reads = [_Read(part, held.sharded) for part in parts]
            layout = Layout(held.stage, held.sharded)
            self.add("sum", held.stage, reads, [(total, layout, self.program.kinds[name])])
            gradients[name] = [total]
        return gradients[name][0]


def transformer(layers: int, stages: int, tensor_parallel: int) -> Program:
    """Return a stack of decoder blocks, an equal share of them on each stage.

    Activations between blocks are sharded along the sequence, heads and the wide part of the MLP
    along the hidden dimension, after Megatron-LM's sequence parallelism.
    """
    build = _Builder(stages, tensor_parallel)
    build.add("feed", 0, (), [("tokens", Layout(0), Kind(BATCH * SEQUENCE, 8))])
    build.add("feed", 0, (), [("mask", Layout(0), _MASK)])
    table = build.parameter("embedding", 0)
    x = build.forward("embed", 0, [_Read("tokens"), table], "x", _TOKENS)
    for layer in range(layers):
        x = _block(build, f"l{layer}", layer * stages // layers, x)
    last = stages - 1
    loss = build.forward("loss", last, [_Read(x, _SEQUENCE_DIM)], "loss", Kind(1, 4), partial=True)
    build.backward(loss)
    return build.program


def _block(build: _Builder, name: str, stage: int, x: str) -> str:
    """Append attention and an MLP, each behind a norm and with a residual around it."""

    def forward(
        kind: str, reads: Sequence[_Read], output: str, value: Kind = _TOKENS, **layout: int
    ) -> str:
        partial = bool(layout.pop("partial", False))
        return build.forward(
            kind, stage, reads, f"{name}.{output}", value, partial=partial, **layout
        )

    def weight(kind: str, sharded: int, size: int = 1) -> _Read:
        return build.parameter(f"{name}.{kind}", stage, sharded, size)

    by_sequence, by_hidden = _SEQUENCE_DIM, _HIDDEN_DIM
    columns, rows = 1, 0
    norm = forward("layer_norm", [_Read(x, by_sequence)], "norm1", sharded=by_sequence)
    q, k, v = (
        forward("matmul", [_Read(norm), weight(f"w{each}", columns)], each, sharded=by_hidden)
        for each in "qkv"
    )
    heads = 1
    scores = forward(
        "scores", [_Read(q, by_hidden), _Read(k, by_hidden)], "scores", _SCORES, sharded=heads
    )
    masked = forward(
        "where", [_Read("mask"), _Read(scores, heads)], "masked", _SCORES, sharded=heads
    )
    shares = forward("softmax", [_Read(masked, heads)], "shares", _SCORES, sharded=heads)
    context = forward(
        "context", [_Read(shares, heads), _Read(v, by_hidden)], "context", sharded=by_hidden
    )
    mixed = forward("matmul", [_Read(context, by_hidden), weight("wo", rows)], "mixed", partial=1)
    attended = forward(
        "add", [_Read(x, by_sequence), _Read(mixed, by_sequence)], "attended", sharded=by_sequence
    )
    norm = forward("layer_norm", [_Read(attended, by_sequence)], "norm2", sharded=by_sequence)
    wide = forward(
        "matmul", [_Read(norm), weight("w1", columns, 4)], "wide", _WIDE, sharded=by_hidden
    )
    active = forward("gelu", [_Read(wide, by_hidden)], "active", _WIDE, sharded=by_hidden)
    narrow = forward(
        "matmul", [_Read(active, by_hidden), weight("w2", rows, 4)], "narrow", partial=1
    )
    return forward(
        "add",
        [_Read(attended, by_sequence), _Read(narrow, by_sequence)],
        "out",
        sharded=by_sequence,
    )
