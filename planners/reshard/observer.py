"""Count and time the work of blocks and resharders, by patching methods of their classes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from harness.contract import Progress, Recorder
from planners.instruments import replaced
from planners.reshard.resharding.block import Block, DeltaSync
from planners.reshard.resharding.graph import Attribute, Twin
from planners.reshard.resharding.resharder import IndexedResharder, Resharder


def _synced(block: Block) -> dict[str, int]:
    names = [name for op in block.ops for name in (*op.inputs, *op.outputs)]
    return {
        "syncs": 1,
        "ops_visited": len(block.ops),
        "values_visited": len(block.values),
        "crossed_bytes": sum(map(len, names)),
    }


def _replayed(_: Block, journal: Any) -> dict[str, int]:
    names = [name for op, _ in journal for name in op.outputs]
    return {
        "ops_visited": len(journal),
        "values_visited": len(names),
        "crossed_bytes": sum(map(len, names)),
    }


def _created(
    _: Twin, kind: str, __: Any, outputs: Any, attributes: Mapping[str, Attribute], *___: Any
) -> dict[str, int]:
    names = (kind, *outputs, *attributes)
    return {"crossed_bytes": sum(map(len, names)) + sum(map(_bytes, attributes.values()))}


def _bytes(value: Attribute) -> int:
    """Return the size of an attribute in bytes, 8 per number."""
    if isinstance(value, int):
        return 8
    return len(value) if isinstance(value, str) else 8 * len(value)


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters, phases and progress of all resharding in the `with` block."""
    counters = recorder.counters
    recorder.progress = lambda: Progress(counters["edits"], None, "edits")

    def added(called: Callable[..., Any], work: Callable[..., dict[str, int]]) -> Any:
        """Wrap `called` so that each call adds the counts from `work` to the counters."""

        def counted(*arguments: Any) -> Any:
            result = called(*arguments)
            if recorder.current is not None:
                counters.update(work(*arguments))
            return result

        return counted

    def edit(called: Callable[..., Any], counter: str) -> Any:
        return recorder.counted("edits", recorder.counted(counter, called))

    timed = recorder.timed
    return replaced(
        (
            (Block, "sync", timed("syncing", added(Block.sync, _synced))),
            (DeltaSync, "replay", timed("syncing", added(DeltaSync.replay, _replayed))),
            (Block, "remove", timed("removing", Block.remove, "batches")),
            (Block, "insert", timed("inserting", edit(Block.insert, "inserts"))),
            (Block, "destroy", edit(Block.destroy, "removals")),
            (Block, "finish", recorder.counted("batches", Block.finish)),
            (Twin, "create", added(Twin.create, _created)),
            (Resharder, "reshard_input", recorder.counted("parses", Resharder.reshard_input)),
            (Resharder, "place_of", timed("searching", Resharder.place_of)),
            (Resharder, "readers", timed("searching", Resharder.readers)),
            (IndexedResharder, "readers", timed("searching", IndexedResharder.readers)),
        )
    )
