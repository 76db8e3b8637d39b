"""Faster or smaller rearrangements of experts in vLLM and SGLang: one call switches them on.

from shardbench import accelerate_experts

accelerated = accelerate_experts()
serve()
print(accelerated.info())
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from threading import Lock, local
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from harness.contract import InfeasibleDecision, UsageError, one_line
from planners.experts.balancing.few_moves import few_moves
from planners.experts.drop_in.engines import find_engine
from planners.experts.drop_in.recording import Recording
from planners.experts.implementation import validate
from planners.experts.problem import ExpertsProblem, Placement

Mode = Literal["same-placement", "few-moves"]

_switch = Lock()


class DifferentPlacement(UserWarning):
    """Warn that upstream decided otherwise or our code failed; upstream decides from now on."""


class ExpertsInfo(NamedTuple):
    """Rebalancings so far: those decided by shardbench, and upstream's by reason."""

    ours: int
    by_upstream: Mapping[str, int]


class accelerate_experts(AbstractContextManager["accelerate_experts"]):  # noqa: N801 - a call
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
        self._recording = None if capture is None else Recording(self._library, capture)
        self._mode, self._budget, self._check = mode, budget, check
        self._ours, self._by_upstream = 0, Counter[str]()
        self._distrusted = ""
        self._deciding = local()
        self._end: Callable[[], None] | None = lambda: None
        if not _switch.acquire(blocking=False):
            raise UsageError("Experts are accelerated already; stop that one first.")
        try:
            release = str(import_module(self._library).__version__)
            tested = self._engine.releases
            if tested.allow("accelerate_experts()", release, any_release=any_release):
                upstream = self._engine.owner.rebalance_experts
                parts = self._engine.parts(release) if mode == "same-placement" else {}
                hooks = {name: partial(self._part, part) for name, part in parts.items()}
                self._end = self._engine.hooked(self._decide, **hooks)
                self._compile(upstream)
        except BaseException:
            self.stop()
            raise

    def info(self) -> ExpertsInfo:
        """Return the numbers of rebalancings; `stop` keeps them."""
        return ExpertsInfo(self._ours, dict(self._by_upstream))

    def stop(self) -> None:
        """Leave all further rebalancings to the engine's policy."""
        end, self._end = self._end, None
        if end:
            end()
            _switch.release()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _compile(self, upstream: Callable[..., Any]) -> None:
        """Compile the loops for small problems, so that no rebalancing waits for it."""
        if self._mode == "same-placement":
            self._same(upstream, torch.ones(1, 4), 4, 1, 1, 2, None)
            return
        loads, held = np.array([[9.0, 3, 1, 8, 6, 4]]), np.array([[0, 1, 2, 2, 3, 4, 5, 5]])
        for nodes, gpus in product((1, 2), (2, 4)):  # with four slots per GPU, and with two
            few_moves(ExpertsProblem(loads, loads, gpus, 8 // gpus, nodes, nodes, previous=held))

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
                placement = self._same(upstream, *arguments, **named)
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
            reason = self._distrust(failure)
        self._ours += not reason
        self._by_upstream.update([reason] if reason else [])
        return placement

    def _same(self, upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Return upstream's decision with our parts, in this thread alone."""
        self._deciding.is_on = True
        try:
            return upstream(*arguments, **named)
        finally:
            self._deciding.is_on = False

    def _part(
        self, ours: Callable[..., Any], upstream: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """Answer a call of one of the engine's parts: with ours inside `_same`, else upstream's."""
        is_on = getattr(self._deciding, "is_on", False)
        return (ours if is_on else upstream)(*arguments, **named)

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

    def _distrust(self, reason: str) -> str:
        self._distrusted = reason
        text = f"{self._library}'s own policy places experts from now on: {reason}."
        warnings.warn(text, DifferentPlacement, stacklevel=4)
        return reason


def _equal(ours: Any, expected: Any) -> bool:
    """Return whether tensors, or tuples of tensors, are equal in type, shape and values."""
    if isinstance(expected, tuple):
        return len(ours) == len(expected) and all(map(_equal, ours, expected))
    return ours.dtype == expected.dtype and bool(torch.equal(ours, expected))
