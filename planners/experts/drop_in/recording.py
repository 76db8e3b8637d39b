"""Record the inputs of an engine's rebalancings, and write them in a captured file."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from planners.experts.captured import Captured, StepRecord
from planners.experts.drop_in.engines import find_engine, hooked
from planners.experts.problem import ExpertsProblem

_MOST_STEPS = 16


class Recording:
    """The inputs of the last rebalancings with equal sizes.

    With a path, rank 0 writes the file after each rebalancing, because an engine is often killed.
    """

    def __init__(self, engine: str, path: str | Path | None = None) -> None:
        self._engine = engine
        self._path = None if path is None else Path(path)
        if self._path and not (is_captured_file(self._path.name) and self._path.parent.is_dir()):
            raise UsageError(f"{path} must end in .json or .json.gz, in a folder that exists.")
        self._sizes: dict[str, int] = {}
        self._steps: deque[StepRecord] = deque(maxlen=_MOST_STEPS)

    def add(self, problem: ExpertsProblem) -> None:
        """Record a rebalancing; an error while writing is a warning."""
        names = ("gpus", "slots", "groups", "nodes")
        sizes = {name: getattr(problem, name) for name in names}
        if sizes != self._sizes:
            self._steps.clear()
            self._sizes = sizes
        old = problem.previous
        placement = None if old is None or old.min() < 0 else old.tolist()
        self._steps.append(StepRecord(problem.loads.tolist(), placement))
        if self._path and _is_first_rank():
            try:
                write_captured(self._path, "experts", Names(), self.content())
            except (OSError, ValueError) as error:
                warnings.warn(f"{self._path} was not written: {one_line(error)}.", stacklevel=2)

    def content(self) -> Mapping[str, Any]:
        """Return the rebalancings as JSON types; raises ShardbenchError if there was none."""
        if not self._steps:
            raise ShardbenchError("no rebalancing was made inside.")
        steps = list(self._steps)
        content: Mapping[str, Any] = to_builtins(
            Captured(engine=self._engine, steps=steps, **self._sizes)
        )
        return content


def _is_first_rank() -> bool:
    group = torch.distributed
    return not (group.is_available() and group.is_initialized()) or group.get_rank() == 0


@contextmanager
def capturing(_: Names) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Record the rebalancings of the installed engine in the `with` block."""
    engine = find_engine()
    recording = Recording(engine.releases.library)

    def decide(upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            recording.add(engine.asked(*arguments, **named))
        except Exception as error:  # the engine goes on, and raises errors of its own
            warnings.warn(f"A rebalancing was not captured: {one_line(error)}.", stacklevel=2)
        return upstream(*arguments, **named)

    end = hooked(engine, decide)
    try:
        yield recording.content
    finally:
        end()
