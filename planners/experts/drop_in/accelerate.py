"""Faster or smaller rearrangements of experts in vLLM and SGLang: one call switches them on.

from shardbench import accelerate_experts

accelerated = accelerate_experts()
serve()
print(accelerated.info())
"""

import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from msgspec import to_builtins

from harness.contract import (
    InfeasibleDecision,
    Names,
    UsageError,
    is_captured_file,
    one_line,
    write_captured,
)
from planners.acceleration import Acceleration
from planners.experts.balancing.few_moves import few_moves
from planners.experts.drop_in.engines import find_engine
from planners.experts.implementation import validate
from planners.experts.problem import ExpertsProblem, Placement
from planners.experts.workloads import SIZES, Captured, StepRecord

Mode = Literal["same-placement", "few-moves"]

_MOST_STEPS = 16


class DifferentPlacement(UserWarning):
    """Warn that upstream decided otherwise or our code failed; upstream decides from now on."""


class ExpertsInfo(NamedTuple):
    """Rebalancings so far: those decided by shardbench, and upstream's by reason."""

    ours: int
    by_upstream: Mapping[str, int]


class accelerate_experts(Acceleration):  # noqa: N801 - a call
    """Placements of experts by compiled code, in vLLM's and SGLang's rebalancing of this process.

    Mode `same-placement` returns what the engine's policy returns, to the last bit. Mode
    `few-moves` changes the decision: it starts from the placement in force and fetches few experts.
    The acceleration ends with `stop` or with the `with` block. The engine's policy decides where
    ours cannot, such as for loads that are no numbers; `info` has the reasons. On a release that
    was not tested, warn once and change nothing.

    Args:
        engine: `vllm` or `sglang`; by default the one that is installed.
        mode: the kind of placement, `same-placement` or `few-moves`.
        budget: with `few-moves`, the experts that may be fetched in each layer; by default as many
            as a load within 2 % of the best needs.
        check: whether the engine's policy decides too. After the first difference a
            `DifferentPlacement` warning appears, and the engine's policy decides from then on.
        capture: a file for the inputs of the last rebalancings, for `--workload`; rank 0 writes it.
        any_release: accelerate any installed release, tested or not.

    Raises UsageError for wrong arguments, and if experts are accelerated already.
    """

    def __init__(
        self,
        engine: str = "",
        *,
        mode: Mode = "same-placement",
        budget: int | None = None,
        check: bool = False,
        capture: str | Path | None = None,
        any_release: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"The mode must be 'same-placement' or 'few-moves', not {mode!r}.")
        if budget is not None and (mode != "few-moves" or type(budget) is not int or budget < 0):
            raise UsageError(
                f"A budget is a number of experts from 0 for mode 'few-moves', not {budget!r}."
            )
        if check and mode == "few-moves":
            raise UsageError("Mode 'few-moves' decides otherwise than upstream; leave out 'check'.")
        self._engine = find_engine(engine)
        self._library = self._engine.releases.library
        self._recording = None if capture is None else _Recording(self._library, Path(capture))
        self._mode, self._budget, self._check = mode, budget, check
        self._ours, self._by_upstream = 0, Counter[str]()
        self._distrusted = ""
        super().__init__("Experts are", partial(self._begin, any_release))

    def _begin(self, any_release: bool) -> Callable[[], None]:
        """Hook into the engine's policy; return how to end that."""
        release, tested = str(import_module(self._library).__version__), self._engine.releases
        if not tested.allow("accelerate_experts()", release, any_release=any_release):
            return lambda: None
        self._accelerated = self._engine.accelerated(release)
        self._compile()
        return self._engine.hook(self._decide)

    def info(self) -> ExpertsInfo:
        """Return the numbers of rebalancings; `stop` keeps them."""
        return ExpertsInfo(self._ours, dict(self._by_upstream))

    def _compile(self) -> None:
        """Compile the loops for small problems, so that no rebalancing waits for it."""
        if self._mode == "same-placement":
            self._accelerated(torch.ones(1, 4), 4, 1, 1, 2, None)
            return
        loads, slots = np.array([[9.0, 3, 1, 8, 6, 4]]), np.array([[0, 1, 2, 2, 3, 4, 5, 5]])
        for nodes, gpus in product((1, 2), (2, 4)):  # with four slots per GPU, and with two
            few_moves(ExpertsProblem(loads, loads, gpus, 8 // gpus, nodes, nodes, previous=slots))

    def _decide(self, upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Answer one rebalancing."""
        reason, failure, placement = self._distrusted, "", None
        try:
            problem = self._engine.problem(upstream, *arguments, **named)
            if self._recording is not None:
                self._recording.add(problem)
            if not reason and self._mode == "few-moves":
                placement = self._with_few_moves(problem)
            elif not reason:
                placement = self._accelerated(*arguments, **named)
        except ValueError as error:
            reason = reason or str(error)
        except Exception as error:  # an engine must go on, whatever fails here
            failure = f"our code failed: {one_line(error)}"
        if reason or failure or self._check:
            expected = upstream(*arguments, **named)  # where it raises too, the call is to blame
            if not reason and not failure and not _equal(placement, expected):
                failure = "it decided otherwise"
            placement = expected
        if failure and not reason:
            self._distrusted = reason = failure
            text = f"{self._library}'s own policy places experts from now on: {failure}."
            warnings.warn(text, DifferentPlacement, stacklevel=3)
        self._ours += not reason
        self._by_upstream.update([reason] if reason else [])
        return placement

    def _with_few_moves(self, problem: ExpertsProblem) -> Any:
        if problem.previous is None:
            raise ValueError("no placement is in force")
        try:
            validate(problem, Placement(problem.previous))
        except InfeasibleDecision:  # an engine's first placement may have groups on several nodes
            raise ValueError("the placement in force is not valid") from None
        made = few_moves(replace(problem, budget=self._budget))
        validate(problem, made)
        return self._engine.result(problem, made.slots)


def _equal(ours: Any, expected: Any) -> bool:
    """Return whether tensors, or tuples of tensors, are equal in type, shape and values."""
    if isinstance(expected, tuple):
        return len(ours) == len(expected) and all(map(_equal, ours, expected))
    return ours.dtype == expected.dtype and bool(torch.equal(ours, expected))


class _Recording:
    """The inputs of the last rebalancings with equal sizes.

    Rank 0 writes the file after each rebalancing, because an engine is often killed.
    """

    def __init__(self, engine: str, path: Path) -> None:
        if not (is_captured_file(path.name) and path.parent.is_dir()):
            raise UsageError(f"{path} must end in .json or .json.gz, in a folder that exists.")
        self._engine, self._path, self._sizes = engine, path, dict[str, int]()
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
        if group.is_available() and group.is_initialized() and group.get_rank():
            return
        record = Captured(engine=self._engine, steps=list(self._steps), **sizes)
        try:
            write_captured(self._path, "experts", Names(), to_builtins(record))
        except OSError as error:
            warnings.warn(f"{self._path} was not written: {one_line(error)}.", stacklevel=2)
