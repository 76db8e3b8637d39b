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
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from harness.contract import UsageError, one_line
from planners.experts.balancing.few_moves import few_moves
from planners.experts.drop_in.engines import find_engine, hooked
from planners.experts.drop_in.recording import Recording
from planners.experts.implementation import validate
from planners.experts.problem import ExpertsProblem, Placement
from planners.instruments import replaced

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
        self._recording = (
            None if capture is None else Recording(self._engine.releases.library, capture)
        )
        self._mode, self._budget, self._check = mode, budget, check
        self._ours, self._by_upstream = 0, Counter[str]()
        self._distrusted = ""
        self._deciding = Lock()
        self._end: Callable[[], None] = lambda: None
        if not _switch.acquire(blocking=False):
            raise UsageError("Experts are accelerated already; stop that one first.")
        try:
            release = self._engine.release
            if self._engine.releases.allow(
                "accelerate_experts()", release, any_release=any_release
            ):
                self._owner = self._engine.owner
                self._parts = self._engine.parts(release)
                self._compile()
                self._end = hooked(self._engine, self._decide)
        except BaseException:
            _switch.release()
            raise
        self._is_on = True

    def info(self) -> ExpertsInfo:
        """Return the numbers of rebalancings; `stop` keeps them."""
        return ExpertsInfo(self._ours, dict(self._by_upstream))

    def stop(self) -> None:
        """Leave all further rebalancings to the engine's policy."""
        if self._is_on:
            self._is_on = False
            self._end()
            _switch.release()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _compile(self) -> None:
        """Compile the loops for small problems, so that no rebalancing waits for it."""
        if self._mode == "same-placement":
            self._same(self._owner.rebalance_experts, *self._engine.example)
            return
        loads = np.arange(1.0, 9.0).reshape(1, 8)
        for groups in (1, 2):
            held = np.arange(8).reshape(1, 8)
            few_moves(ExpertsProblem(loads, loads, 4, 2, groups, groups, previous=held))

    def _decide(self, upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Answer one rebalancing."""
        with self._deciding:  # the parts of a module are replaced for the time of one call
            obstacle, found = self._distrusted, None
            try:
                problem = self._engine.asked(*arguments, **named)
                if self._recording is not None:
                    self._recording.add(problem)
            except (ValueError, TypeError, ArithmeticError, AttributeError, IndexError) as error:
                obstacle = obstacle or one_line(error)
            if not obstacle:
                try:
                    if self._mode == "same-placement":
                        found = self._same(upstream, *arguments, **named)
                    else:
                        found = self._with_few_moves(problem)
                except _NotCompiled as error:
                    obstacle = str(error)
                except Exception as error:  # an engine must go on, whatever fails here
                    obstacle = self._distrust(f"the compiled code failed: {one_line(error)}")
        if obstacle or self._check:
            expected = upstream(*arguments, **named)
            if not obstacle and not _equal(found, expected):
                obstacle = self._distrust("the engine's policy decided otherwise")
            found = expected
        if obstacle:
            self._by_upstream[obstacle] += 1
        else:
            self._ours += 1
        return found

    def _same(self, upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with replaced((self._owner, name, part) for name, part in self._parts.items()):
            return upstream(*arguments, **named)

    def _with_few_moves(self, problem: ExpertsProblem) -> Any:
        if problem.previous is None:
            raise _NotCompiled("no placement is in force")
        try:
            validate(problem, Placement(problem.previous))
        except Exception:  # of another size, with empty slots, or with groups on several nodes
            raise _NotCompiled("the placement in force is not valid for these sizes") from None
        made = few_moves(replace(problem, budget=self._budget))
        validate(problem, made)
        return self._engine.result(problem, made.slots)

    def _distrust(self, reason: str) -> str:
        self._distrusted = reason
        text = f"Experts are placed by {self._engine.releases.library} from now on: {reason}."
        warnings.warn(text, DifferentPlacement, stacklevel=4)
        return reason


class _NotCompiled(Exception):
    """A reason, as a clause, to leave a rebalancing to the engine's policy."""


def _equal(found: Any, expected: Any) -> bool:
    """Return whether tensors, or tuples of tensors, are equal in type, shape and values."""
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(_equal, found, expected))
    return found.dtype == expected.dtype and bool(torch.equal(found, expected))
