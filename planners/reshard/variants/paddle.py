"""Variants that run real Paddle releases in child processes, with and without two changes."""

from pathlib import Path

from harness.contract import Measured, NotApplicable, Prepared, Upstream, is_observing
from planners.reshard.family import FAMILY
from planners.reshard.problem import PaddleDecision, PaddleProblem, ReshardProblem
from planners.reshard.variants.resharders import CLAIMS

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_BEFORE = "paddle-2.6.2"
_AFTER = "paddle-3.3.1"
_BATCHED = {_BEFORE: "part1+2", _AFTER: "sync-once"}


@FAMILY.variant(_BEFORE, source="Paddle 2.6.2", upstream=_BEFORE)
def before(problem: ReshardProblem) -> "Prepared[PaddleDecision]":
    """Paddle 2.6.2, the last release without #59912 and #60022."""
    return _asked(problem, _BEFORE, "as-shipped")


@FAMILY.variant(
    f"{_BEFORE}+part1",
    source="PaddlePaddle/Paddle#59912",
    same_as=_BEFORE,
    upstream=_BEFORE,
    claim=CLAIMS[0],
)
def part1(problem: ReshardProblem) -> "Prepared[PaddleDecision]":
    """Paddle 2.6.2 with #59912 emulated: one sync after a batch of removed variables."""
    return _asked(problem, _BEFORE, "part1")


@FAMILY.variant(
    f"{_BEFORE}+part1+2",
    source="PaddlePaddle/Paddle#60022",
    same_as=_BEFORE,
    upstream=_BEFORE,
    claim=CLAIMS[1],
)
def part1_and_2(problem: ReshardProblem) -> "Prepared[PaddleDecision]":
    """Paddle 2.6.2 with #59912 and #60022 emulated: one sync after a batch of new ops too."""
    return _asked(problem, _BEFORE, "part1+2")


@FAMILY.variant(_AFTER, source="Paddle 3.3.1", upstream=_AFTER)
def after(problem: ReshardProblem) -> "Prepared[PaddleDecision]":
    """Paddle 3.3.1, which has both changes, but its only caller switches #60022 off."""
    return _asked(problem, _AFTER, "as-shipped")


@FAMILY.variant(f"{_AFTER}-sync-once", source="Paddle 3.3.1", same_as=_AFTER, upstream=_AFTER)
def after_sync_once(problem: ReshardProblem) -> "Prepared[PaddleDecision]":
    """Paddle 3.3.1 with #60022 switched on."""
    return _asked(problem, _AFTER, "sync-once")


def _asked(problem: ReshardProblem, release: str, mode: str) -> Prepared[PaddleDecision]:
    if not isinstance(problem, PaddleProblem):
        raise NotApplicable("It reshards Paddle's own programs, those of the workload 'paddle'.")
    request = {
        "kind": "reshard",
        "layers": problem.layers,
        "pipeline": problem.stages,
        "tensor": problem.tensor_parallel,
        "rank": problem.rank,
    }
    upstream = Upstream(release, _DRIVER)

    def run() -> Measured[PaddleDecision]:
        counts = is_observing()
        answer = upstream.ask(request | {"mode": mode, "count": counts})
        counters = dict(answer["counters"])
        if counts:  # batches = syncs in this release's batched mode
            batched = upstream.ask(request | {"mode": _BATCHED[release], "count": True})
            counters["batches"] = batched["counters"]["syncs"]
            counters["edits"] = counters["inserts"] + counters["removals"]
        decision = PaddleDecision(answer["fingerprint"][:16], answer["ops"], answer["variables"])
        return Measured(decision, answer["wall_s"], answer["cpu_s"], counters=counters)

    return Prepared(run, close=upstream.close)
