"""Count and time the steps of all balancers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from harness.contract import Recorder
from planners.experts import kernels
from planners.experts.balancing import certified, few_moves, two_slots
from planners.experts.published import Balancer
from planners.instruments import replaced


def _improved(result: tuple[float, int, int, int]) -> dict[str, int]:
    _, tried, exchanges, replications = result
    return {"steps_tried": tried, "exchanges": exchanges, "replications": replications}


def _fitted(result: tuple[bool, int]) -> dict[str, int]:
    return {"limits_tried": 1, "replications": result[1]}


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record the phases and counters of every placement that is made in the `with` block."""

    def step(
        owner: Any, name: str, phase: str, work: Callable[[Any], dict[str, int]] = lambda _: {}
    ) -> tuple[Any, str, Any]:
        called = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            outer = recorder.current
            with recorder.phase(phase):
                result = called(*arguments)
            if outer != phase:  # a compiled step inside the same step counts once
                recorder.counters.update(work(result))
            return result

        return owner, name, counted

    def packed(result: Any) -> dict[str, int]:
        return {"replicas_packed": result.size}

    return replaced(
        (
            step(Balancer, "replicate", "replicate"),
            step(kernels, "replicate", "replicate"),
            step(Balancer, "pack", "pack", packed),
            step(kernels, "pack", "pack", packed),
            step(kernels, "improve", "improve", _improved),
            step(kernels, "fill", "improve", lambda _: {"fillings": 1}),
            step(two_slots, "fit_counts", "improve", _fitted),
            step(few_moves, "paired_near", "assign"),
            step(few_moves, "renamed", "assign"),
            step(certified, "bounds_of", "bound"),
        )
    )
