"""Measure a drop-in on your own training step: off and on take turns in one process.

from shardbench import compare_step

compare_step(step, state=(model, optimizer))
"""

import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from copy import deepcopy
from importlib import import_module
from typing import Any, NamedTuple

import torch

from harness.contract import Prepared, UsageError
from harness.measuring.timing.turns import SystemClock, objects_frozen
from harness.measuring.timing.verdict import estimate_ratio, judge
from harness.measuring.timing.ways import Timing, in_turns
from harness.model.cell import Ratio


class StepComparison(NamedTuple):
    """The wall time of a step with the drop-in / without, and whether losses are equal.

    The ratio has a 99 % interval. `are_losses_equal` compares losses to the last bit; it is None if
    they differ between two runs without the drop-in.
    """

    ratio: Ratio
    are_losses_equal: bool | None

    def __str__(self) -> str:
        losses = {
            True: "Losses are equal to the last bit",
            False: "Losses differ",
            None: "Losses are not compared, because they differ between two runs without it",
        }[self.are_losses_equal]
        ratio = self.ratio
        return (
            f"A step with the drop-in takes {ratio.value:.3f} of the time ({ratio.low:.3f} to "
            f"{ratio.high:.3f}, {ratio.pairs} pairs): {judge(ratio)}. {losses}."
        )


@objects_frozen()
def compare_step(
    step: Callable[[], Any],
    on: Callable[[], AbstractContextManager[Any]] | None = None,
    *,
    state: Iterable[Any] = (),
    blocks: int = 10,
    steps: int = 5,
    clock: SystemClock | None = None,
) -> StepComparison:
    """Compare the time and the losses of a step without and with a drop-in; print the result.

    First `steps` steps run without, with, and again without the drop-in, each time from the same
    state and the same random numbers of torch. The losses are judged if both runs without it agree.
    Then both sides are timed in turns of `steps` steps, twice in each of the `blocks`; a step
    before each turn is not timed, because it fills caches. The number of steps is fixed, so all
    ranks of a job can call this together; rank 0 prints.

    Args:
        step: runs one step and returns its loss: a number, or a tensor with one element.
        on: a function that returns the drop-in's context; by default `accelerate`.
        state: what a step changes, such as model and optimizer: objects with `state_dict` and
            `load_state_dict`. They are as before in the end. A copy is kept in memory.
        blocks, steps: pairs of turns on each side, at least 1; timed steps in a turn, at least 2.
        clock: the clock to time with.

    Raises UsageError for other numbers, or a step that returns no loss.
    """
    if blocks < 1 or steps < 2:
        raise UsageError("compare_step needs at least 1 block and 2 steps in a turn.")
    state = tuple(state)
    saved = deepcopy([part.state_dict() for part in state])
    gpus = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    on = on or import_module("shardbench").accelerate
    prepared = {
        "off": Prepared(lambda: _loss(step)),
        "on": Prepared(lambda: _loss(step), installed=on),
    }

    def restore() -> None:
        for part, content in zip(state, deepcopy(saved), strict=True):
            part.load_state_dict(content)

    def losses(name: str) -> list[str]:
        restore()
        with torch.random.fork_rng(gpus), prepared[name].installed():
            return [_loss(step).hex() for _ in range(steps)]

    try:
        off, with_it, again = map(losses, ("off", "on", "off"))
        calls = dict.fromkeys(prepared, steps)
        timing = Timing(prepared, clock or SystemClock(), calls=calls)
        seconds: dict[str, list[float]] = {name: [] for name in prepared}
        names, rng = list(prepared), random.Random(0)
        with torch.random.fork_rng(gpus):
            for _ in range(blocks):
                rng.shuffle(names)
                for name, turns in in_turns(timing, names, rng).items():
                    seconds[name] += [turn.wall_s for turn in turns]
    finally:
        restore()
    ratio = estimate_ratio(seconds["on"], seconds["off"])
    result = StepComparison(ratio, with_it == off if off == again else None)
    group = torch.distributed
    if not (group.is_available() and group.is_initialized() and group.get_rank()):
        print(result)  # noqa: T201 - to the terminal of the user's own script
    return result


def _loss(step: Callable[[], Any]) -> float:
    """Run a step; return its loss, which waits for a GPU."""
    loss = step()
    try:
        return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(
            "The step must return its loss, a number or a tensor with one element, not "
            f"{type(loss).__name__}."
        ) from None
