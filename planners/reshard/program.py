"""Programs before resharding: a transformer with a sequence-parallel Megatron layout, and a chain.

A program is a C++ graph. The transformer has forward, backward and optimizer ops. Every op runs on
the ranks of one pipeline stage, and needs a certain layout of each input. A resharder inserts ops
that produce the layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Attribute = str | int
NAMESPACE = "reshard::"


def new_graph() -> Any:
    """Return an empty torch._C.Graph."""
    import torch  # here: listing variants must be quick, and work without torch

    return torch._C.Graph()


def create(
    graph: Any,
    kind: str,
    inputs: Sequence[Any],
    outputs: Sequence[str],
    attributes: Mapping[str, Attribute],
    before: Any = None,
) -> Any:
    """Create a node before the node `before`, or at the end, and return it.

    `inputs` are C++ values; `outputs` are names that no value has.
    """
    node = graph.create(NAMESPACE + kind, list(inputs), len(outputs))
    for name, value in attributes.items():
        if isinstance(value, str):
            node.s_(name, value)
        else:
            node.i_(name, value)
    if before is None:
        graph.appendNode(node)
    else:
        node.insertBefore(before)
    for value, name in zip(outputs_of(node), outputs, strict=True):
        value.setDebugName(name)
    return node


def inputs_of(node: Any) -> list[Any]:
    """Return the input values of a node; `node.inputs()` takes fifty times as long."""
    return [node.inputsAt(index) for index in range(node.inputsSize())]


def outputs_of(node: Any) -> list[Any]:
    """Return the output values of a node."""
    return [node.outputsAt(index) for index in range(node.outputsSize())]


def attributes_of(node: Any) -> dict[str, Attribute]:
    """Return the attributes of a node by name."""
    return {name: getattr(node, node.kindOf(name))(name) for name in node.attributeNames()}


class Layout(NamedTuple):
    """The placement of a value: its pipeline stage, and its sharding between the ranks there."""

    stage: int
    sharded: int | None = None  # the dimension that is split; None if each rank has all of it
    partial: bool = False  # the value is the sum over the ranks


ITEM_BYTES = {"float32": 4, "int64": 8, "bool": 1}


class Value(NamedTuple):
    """A value's layout, and the number and the type of its elements, of all ranks together."""

    layout: Layout
    elements: int
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Bytes of the unsharded tensor."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(slots=True)
class Program:
    """A graph for a mesh of stages and ranks, with its values and the needs of its ops by name."""

    graph: Any
    stages: int
    tensor_parallel: int
    values: dict[str, Value]
    needs: dict[str, tuple[Layout, ...]] = field(default_factory=dict)
    """By the first output of an op: the required layouts of its inputs, in order."""

    def copy(self) -> "Program":
        """Return a copy with its own graph and values, which resharding changes."""
        return replace(self, graph=self.graph.copy(), values=dict(self.values))


def chain(ops: int) -> Program:
    """Return a program of `ops` ops after a first one; each reads the value of the one before."""
    graph = new_graph()
    last = create(graph, "feed", [], ["v0"], {})
    for number in range(1, ops + 1):
        last = create(graph, "step", [last.outputsAt(0)], [f"v{number}"], {"number": number})
    scalar = Value(Layout(stage=0), elements=1)
    return Program(graph, 1, 1, {f"v{number}": scalar for number in range(ops + 1)})


HIDDEN, SEQUENCE, BATCH = 64, 32, 4
_TOKENS = BATCH * SEQUENCE * HIDDEN
_SCORES = BATCH * SEQUENCE * SEQUENCE
_BY_SEQUENCE, _BY_HIDDEN, _BY_HEAD = 1, 2, 1
_BY_ROW, _BY_COLUMN = 0, 1

Reads = Mapping[str, int | None]
"""The inputs of an op by name, each with the dimension to be split between the ranks, or None."""


def transformer(layers: int, stages: int, tensor_parallel: int) -> Program:
    """Return a training program of decoder blocks, spread evenly over the stages.

    The layout is Megatron-LM's sequence parallelism: activations between blocks are sharded by
    sequence, attention by heads, and the wide part of the MLP by the hidden dimension.
    """
    # 1. The forward ops.
    build = _Builder()
    build.append("feed", 0, {}, {"tokens": Value(Layout(0), BATCH * SEQUENCE, "int64")})
    build.append("feed", 0, {}, {"mask": Value(Layout(0), SEQUENCE**2, "bool")})
    x = build.forward("embed", {"tokens": None, **build.parameter("embedding")}, "x")
    for layer in range(layers):
        build.stage, build.prefix = layer * stages // layers, f"l{layer}."
        x = _decoder_block(build, x)
    build.stage, build.prefix = stages - 1, ""
    loss = build.forward("loss", {x: _BY_SEQUENCE}, "loss", elements=1, partial=True)
    # 2. The backward and the optimizer ops.
    build.backward(loss)
    # 3. The graph of all ops.
    graph, handles = new_graph(), dict[str, Any]()
    needs: dict[str, tuple[Layout, ...]] = {}
    for kind, stage, reads, outputs in build.ops:
        inputs = [handles[name] for name in reads]
        node = create(graph, kind, inputs, outputs, {"stage": stage})
        handles.update(zip(outputs, outputs_of(node), strict=True))
        needs[outputs[0]] = tuple(Layout(stage, sharded) for sharded in reads.values())
    return Program(graph, stages, tensor_parallel, build.values, needs)


class _Builder:
    """Collects ops as (kind, stage, reads, outputs), and their values.

    Forward ops and parameters are put on `stage`, with names that begin with `prefix`.
    """

    def __init__(self) -> None:
        self.ops: list[tuple[str, int, Reads, list[str]]] = []
        self.values: dict[str, Value] = {}
        self.stage, self.prefix = 0, ""
        self._gradients: dict[str, list[str]] = {}  # by value, the parts of its gradient

    def append(self, kind: str, stage: int, reads: Reads, outputs: Mapping[str, Value]) -> None:
        """Append an op."""
        self.ops.append((kind, stage, reads, list(outputs)))
        self.values.update(outputs)

    def forward(
        self,
        kind: str,
        reads: Reads,
        output: str,
        sharded: int | None = None,
        elements: int = _TOKENS,
        partial: bool = False,
    ) -> str:
        """Append a forward op with one output, and return the output's name."""
        name, layout = self.prefix + output, Layout(self.stage, sharded, partial)
        self.append(kind, self.stage, reads, {name: Value(layout, elements)})
        return name

    def parameter(self, name: str, sharded: int | None = None, size: int = 1) -> Reads:
        """Append a parameter of size x HIDDEN x HIDDEN elements; return {name: sharded dim}."""
        return {self.forward("parameter", {}, name, sharded, size * HIDDEN**2): sharded}

    def backward(self, loss: str) -> None:
        """Append backward ops in reverse order, and an optimizer op for every parameter."""
        forward, value = list(self.ops), self.values[loss]
        stage, start = value.layout.stage, f"{loss}@grad"
        self.append("fill", stage, {}, {start: value._replace(layout=Layout(stage))})
        self._gradients[loss] = [start]
        for kind, stage, reads, (output,) in reversed(forward):
            if not reads:  # an input of the program, or a parameter
                continue
            needs = {self._gradient(output): self.values[output].layout.sharded, **reads}
            made = {}
            for read, sharded in reads.items():
                if self.values[read].dtype == "bool":
                    continue
                parts = self._gradients.setdefault(read, [])
                name = f"{read}@grad{len(parts)}"
                # If every rank read the unsharded value, each rank has one summand of its gradient.
                layout = Layout(stage, sharded, partial=sharded is None)
                made[name] = self.values[read]._replace(layout=layout)
                parts.append(name)
            self.append(f"{kind}_grad", stage, needs, made)
        for kind, stage, _, (name,) in forward:
            if kind == "parameter":
                value = self.values[name]
                needs = dict.fromkeys((name, self._gradient(name)), value.layout.sharded)
                self.append("adam", stage, needs, {f"{name}@new": value})

    def _gradient(self, name: str) -> str:
        """Return the name of a value's gradient; append a sum first if several ops read it."""
        parts = self._gradients[name]
        if len(parts) > 1:
            value = self.values[name]
            layout, total = value.layout._replace(partial=False), f"{name}@grad"
            reads = dict.fromkeys(parts, layout.sharded)
            self.append("sum", layout.stage, reads, {total: value._replace(layout=layout)})
            parts[:] = [total]
        return parts[0]


def _decoder_block(build: _Builder, x: str) -> str:
    """Append pre-norm attention and MLP, each with a residual connection; return the output."""
    forward = build.forward

    def matmul(read: Reads, weight: str, sharded: int, output: str, size: int = 1) -> str:
        """Append a matmul; its result is sharded if the weight is split by column, else partial."""
        reads = {**read, **build.parameter(weight, sharded, size)}
        if sharded == _BY_ROW:
            return forward("matmul", reads, output, partial=True)
        return forward("matmul", reads, output, _BY_HIDDEN, size * _TOKENS)

    def norm(read: str, output: str) -> Reads:
        return {forward("layer_norm", {read: _BY_SEQUENCE}, output, _BY_SEQUENCE): None}

    def residual(before: str, after: str, output: str) -> str:
        return forward("add", {before: _BY_SEQUENCE, after: _BY_SEQUENCE}, output, _BY_SEQUENCE)

    whole = norm(x, "norm1")
    q, k, v = (matmul(whole, f"w{name}", _BY_COLUMN, name) for name in "qkv")
    scores = forward("scores", {q: _BY_HIDDEN, k: _BY_HIDDEN}, "scores", _BY_HEAD, _SCORES)
    masked = forward("where", {"mask": None, scores: _BY_HEAD}, "masked", _BY_HEAD, _SCORES)
    shares = forward("softmax", {masked: _BY_HEAD}, "shares", _BY_HEAD, _SCORES)
    context = forward("context", {shares: _BY_HEAD, v: _BY_HIDDEN}, "context", _BY_HIDDEN)
    attended = residual(x, matmul({context: _BY_HIDDEN}, "wo", _BY_ROW, "mixed"), "attended")
    wide = matmul(norm(attended, "norm2"), "w1", _BY_COLUMN, "wide", 4)
    active = forward("gelu", {wide: _BY_HIDDEN}, "active", _BY_HIDDEN, 4 * _TOKENS)
    return residual(attended, matmul({active: _BY_HIDDEN}, "w2", _BY_ROW, "narrow", 4), "out")
