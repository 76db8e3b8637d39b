"""A block's twin in C++: a torch._C.Graph, and a count of the edits that are made to it.

Torch's graph keeps no such count, so it is kept here: whoever edits a graph does it through its
twin, also where that is not the block that mirrors it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Attribute = str | int | tuple[int, ...]
NAMESPACE = "reshard::"


class Twin:
    """A real C++ graph; `edits` counts what has been done to it, by whomever."""

    def __init__(self) -> None:
        import torch  # here, since listing the variants must be quick, and work without it

        self.graph: Any = torch._C.Graph()
        self.edits = 0

    def copy(self) -> "Twin":
        """Return a twin with a copy of the graph."""
        other = Twin()
        other.graph = self.graph.copy()
        return other

    def nodes(self) -> list[Any]:
        """Return the nodes in order; each is the same object for as long as somebody keeps it."""
        return list(self.graph.nodes())

    def create(
        self,
        kind: str,
        inputs: Sequence[Any],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
        before: Any = None,
    ) -> Any:
        """Make a node, in front of another one or at the end, and return it.

        `inputs` are C++ values; an output whose name is taken gets another one from torch.
        """
        node = self.graph.create(NAMESPACE + kind, list(inputs), len(outputs))
        for name, value in attributes.items():
            _set(node, name, value)
        if before is None:
            self.graph.appendNode(node)
        else:
            node.insertBefore(before)
        for value, name in zip(outputs_of(node), outputs, strict=True):
            value.setDebugName(name)
        self.edits += 1
        return node

    def destroy(self, node: Any) -> None:
        """Take a node out; nobody may use what it makes, and nobody may use it again."""
        node.destroy()
        self.edits += 1

    def replace_input(self, node: Any, index: int, value: Any) -> None:
        """Let a node read another value."""
        node.replaceInput(index, value)
        self.edits += 1


def _set(node: Any, name: str, value: Attribute) -> None:
    if isinstance(value, str):
        node.s_(name, value)
    elif isinstance(value, int):
        node.i_(name, value)
    else:
        node.is_(name, list(value))


def inputs_of(node: Any) -> list[Any]:
    """Return the values that a node reads; torch's own iterator takes fifty times as long."""
    return [node.inputsAt(index) for index in range(node.inputsSize())]


def outputs_of(node: Any) -> list[Any]:
    """Return the values that a node makes."""
    return [node.outputsAt(index) for index in range(node.outputsSize())]


def kind_of(node: Any) -> str:
    """Return the kind of a node as the block names it."""
    return str(node.kind()).removeprefix(NAMESPACE)


def attributes_of(node: Any) -> dict[str, Attribute]:
    """Return the attributes of a node."""
    return dict(_attributes(node))


def _attributes(node: Any) -> Iterator[tuple[str, Attribute]]:
    for name in node.attributeNames():
        kind = node.kindOf(name)
        value = getattr(node, kind)(name)
        yield name, tuple(value) if kind == "is" else value
