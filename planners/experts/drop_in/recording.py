"""Record the inputs of an engine's rebalancings, and write them in a captured file."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from msgspec import to_builtins

from harness.contract import (
    Names,
    ShardbenchError,
    UsageError,
    is_captured_file,
    one_line,
    write_captured,
)
from planners.experts.drop_in.engines import find_engine
from planners.experts.problem import ExpertsProblem
from planners.experts.workloads import SIZES, Captured, StepRecord

_MOST_STEPS = 16


class Recording:
    """The inputs of the last rebalancings with equal sizes.

    With a path, rank 0 writes the file after each rebalancing, because an engine is often killed.
    """

    def __init__(self, engine: str, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        if self._path and not (is_captured_file(self._path.name) and self._path.parent.is_dir()):
            raise UsageError(f"{path} must end in .json or .json.gz, in a folder that exists.")
        self._engine, self._sizes = engine, dict[str, int]()
        self._steps: deque[StepRecord] = deque(maxlen=_MOST_STEPS)

    def add(self, problem: ExpertsProblem) -> None:
        """Record a rebalancing; an error while writing is a warning."""
        if not problem.loads.any():  # an engine's trial run, before any token
            return
        sizes = {name: getattr(problem, name) for name in SIZES}
        if sizes != self._sizes:
            self._steps.clear()
            self._sizes = sizes
        old = problem.previous
        placement = None if old is None or old.min() < 0 else old.tolist()
        self._steps.append(StepRecord(problem.loads.tolist(), placement))
        group = torch.distributed
        is_other_rank = group.is_available() and group.is_initialized() and group.get_rank()
        if self._path and not is_other_rank:
            try:
                write_captured(self._path, "experts", Names(), self.content())
            except OSError as error:
                warnings.warn(f"{self._path} was not written: {one_line(error)}.", stacklevel=2)

    def content(self) -> Mapping[str, Any]:
        """Return the rebalancings as JSON types; raises ShardbenchError if there was none."""
        if not self._steps:
            raise ShardbenchError("no rebalancing was made inside.")
        record = Captured(engine=self._engine, steps=list(self._steps), **self._sizes)
        content: Mapping[str, Any] = to_builtins(record)
        return content


@contextmanager
def capturing(_: Names) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Record the rebalancings of the installed engine in the `with` block."""
    engine = find_engine()
    recording = Recording(engine.releases.library)

    def decide(upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with suppress(Exception):  # wrong arguments; the engine raises its own error
            recording.add(engine.problem(upstream, *arguments, **named))
        return upstream(*arguments, **named)

    end = engine.hooked(decide)
    try:
        yield recording.content
    finally:
        end()
