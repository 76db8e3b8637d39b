"""Programs before resharding: a transformer with a sequence-parallel Megatron layout.

A program has the forward, backward and optimizer ops. Every op runs on the ranks of one pipeline
stage and requires a certain layout of each input. A resharder inserts ops that produce the layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from planners.reshard.block import Twin

REPLICATED = -1


class ValueLayout(NamedTuple):
    """The placement of a value: its pipeline stage, and its sharding between the ranks there."""

    stage: int
    sharded: int = REPLICATED  # the dimension that is split between the ranks of the stage
    partial: bool = False  # the value is the sum over the ranks


class ValueKind(NamedTuple):
    """The number of elements of an unsharded tensor, bytes per element, and whether it is bool."""

    elements: int
    item_bytes: int
    is_bool: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the unsharded tensor."""
        return self.elements * self.item_bytes


HIDDEN, SEQUENCE, BATCH = 64, 32, 4
_BY_SEQUENCE, _BY_HIDDEN, _BY_HEAD = 1, 2, 1
_BY_ROW, _BY_COLUMN = 0, 1
_TOKENS = ValueKind(BATCH * SEQUENCE * HIDDEN, 4)
_WIDE = ValueKind(BATCH * SEQUENCE * HIDDEN * 4, 4)
_SCORES = ValueKind(BATCH * SEQUENCE * SEQUENCE, 4)
_MASK = ValueKind(SEQUENCE * SEQUENCE, 1, is_bool=True)

Reads = Mapping[str, int]
"""The inputs of an op by name, each with the dimension to be split between the ranks."""


@dataclass(slots=True)
class DistProgram:
    """A graph, with the layouts, sizes and required layouts of its values, all by name."""

    twin: Twin
    stages: int
    tensor_parallel: int
    layouts: dict[str, ValueLayout] = field(default_factory=dict)
    kinds: dict[str, ValueKind] = field(default_factory=dict)
    needs: dict[str, tuple[ValueLayout, ...]] = field(default_factory=dict)
    """By the first output of an op: the required layouts of its inputs, in order."""

    def copy(self) -> "DistProgram":
        """Return a copy with its own graph, layouts and kinds; resharding changes these."""
        return replace(
            self, twin=self.twin.copy(), layouts=dict(self.layouts), kinds=dict(self.kinds)
        )


class _Builder:
    """Append ops to a program, and record its forward ops to derive the backward ops.

    Forward ops and parameters are appended on `stage`, with names that begin with `prefix`.
    """

    def __init__(self, stages: int, tensor_parallel: int) -> None:
        self.program = DistProgram(Twin(), stages, tensor_parallel)
        self.stage, self.prefix = 0, ""
        self._parameters: list[str] = []
        self._handles: dict[str, object] = {}
        self._forward: list[tuple[str, int, Reads, str]] = []  # kind, stage, inputs, output
        self._gradients: dict[str, list[str]] = {}

    def add(
        self,
        kind: str,
        stage: int,
        reads: Reads,
        outputs: Mapping[str, tuple[ValueLayout, ValueKind]],
    ) -> None:
        """Append an op; record its outputs' layouts and kinds and its inputs' required layouts."""
        program = self.program
        handles = [self._handles[name] for name in reads]
        node = program.twin.create(kind, handles, list(outputs), {"stage": stage})
        for index, (name, (layout, value)) in enumerate(outputs.items()):
            self._handles[name] = node.outputsAt(index)
            program.layouts[name] = layout
            program.kinds[name] = value
        needs = tuple(ValueLayout(stage, sharded) for sharded in reads.values())
        program.needs[next(iter(outputs))] = needs

    def parameter(self, name: str, sharded: int = REPLICATED, size: int = 1) -> Reads:
        """Append a parameter of size x HIDDEN x HIDDEN elements; return {name: sharded dim}."""
        name = self.prefix + name
        placed = ValueLayout(self.stage, sharded), ValueKind(size * HIDDEN**2, 4)
        self.add("parameter", self.stage, {}, {name: placed})
        self._parameters.append(name)
        return {name: sharded}

    def forward(
        self,
        kind: str,
        reads: Reads,
        output: str,
        sharded: int = REPLICATED,
        value: ValueKind = _TOKENS,
        partial: bool = False,
    ) -> str:
        """Append a forward op with one output, and return the output's name."""
        stage, name = self.stage, self.prefix + output
        self.add(kind, stage, reads, {name: (ValueLayout(stage, sharded, partial), value)})
        self._forward.append((kind, stage, reads, name))
        return name

    def backward(self, loss: str) -> None:
        """Append backward ops in reverse order, and an optimizer op for every parameter."""
        layouts, kinds = self.program.layouts, self.program.kinds
        stage, start = layouts[loss].stage, f"{loss}@grad"
        self.add("fill", stage, {}, {start: (ValueLayout(stage), kinds[loss])})
        self._gradients[loss] = [start]
        for op in reversed(self._forward):
            self._backward_of(*op)
        for name in self._parameters:
            layout = layouts[name]
            reads = {name: layout.sharded, self._summed(name): layout.sharded}
            self.add("adam", layout.stage, reads, {f"{name}@new": (layout, kinds[name])})

    def _backward_of(self, kind: str, stage: int, inputs: Reads, output: str) -> None:
        program = self.program
        reads = {self._summed(output): program.layouts[output].sharded, **inputs}
        outputs = {}
        for read, sharded in inputs.items():
            if program.kinds[read].is_bool:
                continue
            parts = self._gradients.setdefault(read, [])
            name = f"{read}@grad{len(parts)}"
            # If every rank read the unsharded value, each rank has one summand of its gradient.
            layout = ValueLayout(stage, sharded, partial=sharded == REPLICATED)
            outputs[name] = layout, program.kinds[read]
            parts.append(name)
        if outputs:
            self.add(f"{kind}_grad", stage, reads, outputs)

    def _summed(self, name: str) -> str:
        """Return the name of a value's gradient; append a sum first if several ops read it."""
        parts = self._gradients[name]
        if len(parts) > 1:
            total, layout = f"{name}@grad", self.program.layouts[name]._replace(partial=False)
            reads = dict.fromkeys(parts, layout.sharded)
            self.add("sum", layout.stage, reads, {total: (layout, self.program.kinds[name])})
            self._gradients[name] = [total]
        return self._gradients[name][0]


def transformer(layers: int, stages: int, tensor_parallel: int) -> DistProgram:
    """Return a training program of decoder blocks, spread evenly over the stages.

    The layout is Megatron-LM's sequence parallelism: activations between blocks are sharded by
    sequence, attention by heads, and the wide part of the MLP by the hidden dimension.
    """
    build = _Builder(stages, tensor_parallel)
    build.add("feed", 0, {}, {"tokens": (ValueLayout(0), ValueKind(BATCH * SEQUENCE, 8))})
    build.add("feed", 0, {}, {"mask": (ValueLayout(0), _MASK)})
    x = build.forward("embed", {"tokens": REPLICATED, **build.parameter("embedding")}, "x")
    for layer in range(layers):
        build.stage, build.prefix = layer * stages // layers, f"l{layer}."
        x = _block(build, x)
    build.stage, build.prefix = stages - 1, ""
    loss = build.forward("loss", {x: _BY_SEQUENCE}, "loss", value=ValueKind(1, 4), partial=True)
    build.backward(loss)
    return build.program


def _block(build: _Builder, x: str) -> str:
    """Append pre-norm attention and MLP, each with a residual connection; return the output."""
    forward = build.forward

    def matmul(read: Reads, weight: str, sharded: int, output: str, size: int = 1) -> str:
        """Append a matmul; its result is sharded if the weight is split by column, else partial."""
        reads = {**read, **build.parameter(weight, sharded, size)}
        if sharded == _BY_ROW:
            return forward("matmul", reads, output, partial=True)
        return forward("matmul", reads, output, _BY_HIDDEN, _WIDE if size > 1 else _TOKENS)

    def norm(read: str, output: str) -> Reads:
        return {forward("layer_norm", {read: _BY_SEQUENCE}, output, _BY_SEQUENCE): REPLICATED}

    def residual(before: str, after: str, output: str) -> str:
        return forward("add", {before: _BY_SEQUENCE, after: _BY_SEQUENCE}, output, _BY_SEQUENCE)

    whole = norm(x, "norm1")
    q, k, v = (matmul(whole, f"w{name}", _BY_COLUMN, name) for name in "qkv")
    scores = forward("scores", {q: _BY_HIDDEN, k: _BY_HIDDEN}, "scores", _BY_HEAD, _SCORES)
    masked = forward("where", {"mask": REPLICATED, scores: _BY_HEAD}, "masked", _BY_HEAD, _SCORES)
    shares = forward("softmax", {masked: _BY_HEAD}, "shares", _BY_HEAD, _SCORES)
    context = forward("context", {shares: _BY_HEAD, v: _BY_HIDDEN}, "context", _BY_HIDDEN)
    attended = residual(x, matmul({context: _BY_HIDDEN}, "wo", _BY_ROW, "mixed"), "attended")
    wide = matmul(norm(attended, "norm2"), "w1", _BY_COLUMN, "wide", 4)
    active = forward("gelu", {wide: _BY_HIDDEN}, "active", _BY_HIDDEN, _WIDE)
    return residual(attended, matmul({active: _BY_HIDDEN}, "w2", _BY_ROW, "narrow", 4), "out")
