"""The format of captured rebalancings in files. Reading needs neither NumPy nor torch."""

from typing import Annotated

from msgspec import Meta, Struct

from harness.contract import checked, is_captured_file, read_captured, read_json

SIZES = ("gpus", "slots", "groups", "nodes")

_Amount = Annotated[float, Meta(ge=0, le=2**53)]
_Size = Annotated[int, Meta(ge=1, le=2**20)]
_Expert = Annotated[int, Meta(ge=0, lt=2**20)]


class StepRecord(Struct, frozen=True):
    """One rebalancing: loads by layer and expert, and the expert in each slot before it, if any."""

    loads: list[list[_Amount]]
    placement: list[list[_Expert]] | None = None


class Captured(Struct, frozen=True, kw_only=True):
    """Rebalancings of an engine, oldest first, all with the same sizes."""

    engine: str
    gpus: _Size
    slots: _Size
    groups: _Size
    nodes: _Size
    steps: Annotated[list[StepRecord], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.slots % self.gpus or self.gpus % self.nodes or self.groups % self.nodes:
            raise ValueError("'slots' must divide into 'gpus', 'gpus' and 'groups' into 'nodes'")


def captured(path: str) -> Captured | None:
    """Return a captured file's content, None for other files; raises UsageError for wrong ones."""
    if not is_captured_file(path) or "shardbench" not in read_json(path):
        return None
    return checked(read_captured(path, "experts"), Captured, path)
