"""Counts the work of any block and any resharder, from outside."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from harness.contract import Progress, Recorder
from planners.reshard.resharding.block import Block
from planners.reshard.resharding.graph import Twin
from planners.reshard.resharding.resharder import IndexedResharder, Resharder
from planners.reshard.resharding.syncing import DeltaSync


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record counters, phases and progress of every pass inside."""
    count = recorder.counters
    recorder.progress = lambda: Progress(count["edits"], None, "edits")

    def edit(called: Callable[..., Any], counter: str) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            count[counter] += 1
            count["edits"] += 1
            return called(*arguments)

        return counted

    def sync(called: Callable[..., None]) -> Callable[..., None]:
        def counted(block: Block) -> None:
            called(block)
            count["syncs"] += 1
            count["ops_visited"] += len(block.ops)
            count["values_visited"] += len(block.values)
            count["crossed_bytes"] += sum(
                len(name) for op in block.ops for name in (*op.inputs, *op.outputs)
            )

        return counted

    def replay(called: Callable[..., None]) -> Callable[..., None]:
        def counted(block: DeltaSync, journal: Any) -> None:
            called(block, journal)
            count["ops_visited"] += len(journal)
            names = [name for op, _ in journal for name in op.outputs]
            count["values_visited"] += len(names)
            count["crossed_bytes"] += sum(map(len, names))

        return counted

    def create(called: Callable[..., Any]) -> Callable[..., Any]:
        def counted(
            twin: Twin, kind: str, inputs: Any, outputs: Any, attributes: Any, before: Any = None
        ) -> Any:
            if recorder.current is not None:
                count["crossed_bytes"] += len(kind) + sum(map(len, outputs))
                count["crossed_bytes"] += sum(map(_bytes, attributes.items()))
            return called(twin, kind, inputs, outputs, attributes, before)

        return counted

    with ExitStack() as patches:

        def replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
            patches.enter_context(mock.patch.object(owner, name, by))

        replace(Block, "sync", recorder.timed("syncing", sync(Block.sync)))
        replace(DeltaSync, "replay", recorder.timed("syncing", replay(DeltaSync.replay)))
        replace(Block, "remove", recorder.timed("removing", Block.remove, "batches"))
        replace(Block, "insert", recorder.timed("inserting", edit(Block.insert, "inserts")))
        replace(Block, "destroy", edit(Block.destroy, "removals"))
        replace(Block, "finish", recorder.counted("batches", Block.finish))
        replace(DeltaSync, "finish", recorder.counted("batches", DeltaSync.finish))
        replace(Twin, "create", create(Twin.create))
        replace(Resharder, "parse", recorder.counted("parses", Resharder.parse))
        for owner, name, phase in (
            (Resharder, "place_of", "searching"),
            (Resharder, "readers", "searching"),
            (IndexedResharder, "readers", "searching"),
        ):
            replace(owner, name, recorder.timed(phase, getattr(owner, name)))
        yield


def _bytes(attribute: tuple[str, Any]) -> int:
    """Bytes of an attribute's name and value, 8 for a number."""
    name, value = attribute
    held = (
        len(value) if isinstance(value, str) else 8 * len(value) if isinstance(value, tuple) else 8
    )
    return len(name) + held
