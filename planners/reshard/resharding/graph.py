"""The C++ graph that a block mirrors: a torch._C.Graph, with a count of its edits.

Torch's graph does not count its edits, so all code that edits it has to use the methods of `Twin`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Attribute = str | int | tuple[int, ...]
NAMESPACE = "reshard::"


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
        """Destroy a node; no op may read its outputs, and callers must not use the node again."""
        node.destroy()
        self.edits += 1

    def replace_input(self, node: Any, index: int, value: Any) -> None:
        """Replace the input at `index` of a node by `value`."""
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
    """Return the input values of a node; `node.inputs()` takes fifty times as long."""
    return [node.inputsAt(index) for index in range(node.inputsSize())]


def outputs_of(node: Any) -> list[Any]:
    """Return the output values of a node."""
    return [node.outputsAt(index) for index in range(node.outputsSize())]


def kind_of(node: Any) -> str:
    """Return the op kind of a node, without the namespace `reshard::`."""
    return str(node.kind()).removeprefix(NAMESPACE)


def attributes_of(node: Any) -> dict[str, Attribute]:
    """Return the attributes of a node by name, lists as tuples."""
    found: dict[str, Attribute] = {}
    for name in node.attributeNames():
        value = getattr(node, node.kindOf(name))(name)
        found[name] = tuple(value) if isinstance(value, list) else value
    return found
