"""Count and time the work of blocks and resharders, by patching methods of their classes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from harness.contract import Progress, Recorder
from planners.instruments import replaced
from planners.reshard.block import Attribute, Block, Twin
from planners.reshard.resharder import Resharder


def _synced(block: Block) -> dict[str, int]:
    names = [name for op in block.ops for name in (*op.inputs, *op.outputs)]
    return {"syncs": 1} | _visited(block.ops, len(block.values), names)


def _replayed(block: Block) -> dict[str, int]:
    names = [name for op, _ in block.journal for name in op.outputs]
    return _visited(block.journal, len(names), names)


def _visited(ops: Sequence[Any], values: int, names: Sequence[str]) -> dict[str, int]:
    crossed = sum(map(len, names))
    return {"ops_visited": len(ops), "values_visited": values, "crossed_bytes": crossed}


def _created(
    _: Twin, kind: str, __: Any, outputs: Any, attributes: dict[str, Attribute], *___: Any
) -> dict[str, int]:
    passed = (kind, *outputs, *attributes, *attributes.values())
    return {"crossed_bytes": sum(map(_bytes, passed))}


def _bytes(value: Attribute) -> int:
    """Return the size of a name or an attribute in bytes, 8 per number."""
    if isinstance(value, int):
        return 8
    return len(value) if isinstance(value, str) else 8 * len(value)


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters, phases and progress of all resharding in the `with` block."""
    counters, timed, counted = recorder.counters, recorder.timed, recorder.counted
    recorder.progress = lambda: Progress(counters["edits"], None, "edits")

    def added(called: Callable[..., Any], work: Callable[..., dict[str, int]]) -> Any:
        """Wrap `called` so that each call adds the counts from `work` to the counters."""

        def with_counts(*arguments: Any) -> Any:
            result = called(*arguments)
            if recorder.current is not None:
                counters.update(work(*arguments))
            return result

        return with_counts

    return replaced(
        (
            (Block, "sync", timed("syncing", added(Block.sync, _synced))),
            (Block, "replay", timed("syncing", added(Block.replay, _replayed))),
            (Block, "remove", timed("removing", Block.remove, "batches")),
            (Block, "insert", timed("inserting", counted("inserts", Block.insert), "edits")),
            (Block, "destroy", counted("edits", counted("removals", Block.destroy))),
            (Block, "finish_edits", counted("batches", Block.finish_edits)),
            (Twin, "create", added(Twin.create, _created)),
            (Resharder, "reshard_input", counted("parses", Resharder.reshard_input)),
            (Resharder, "place_of", timed("searching", Resharder.place_of)),
            (Resharder, "readers", timed("searching", Resharder.readers)),
        )
    )
