"""The real ColossalAI, each release in a child process of its own, on streams and as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from harness.contract import Claim, Measured, Prepared, Upstream, is_observing
from planners.dimspec.conversion.costs import CommSpec, Cost, Pattern
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Stream
from planners.dimspec.decision import Answers, Construction, Decision
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import ConstructorProblem, DimSpecProblem

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_BEFORE = "colossalai-0.4.0"
_AFTER = "colossalai-0.4.1"


@FAMILY.variant(_BEFORE, source="ColossalAI 0.4.0", same_as="eager-dict", upstream=_BEFORE)
def before(problem: DimSpecProblem) -> "Prepared[Decision]":
    """The release before hpcaitech/ColossalAI#5446."""
    return _asked(problem, _BEFORE)


@FAMILY.variant(
    _AFTER,
    source="ColossalAI 0.4.1",
    same_as="eager-dict",
    upstream=_AFTER,
    claim=Claim(56.79, 31.93, "s", "strategies of ResNet-50, as published"),
)
def after(problem: DimSpecProblem) -> "Prepared[Decision]":
    """The first release with hpcaitech/ColossalAI#5446."""
    return _asked(problem, _AFTER)


@FAMILY.variant(f"{_AFTER}+interned", source="shardbench", same_as="eager-dict", upstream=_AFTER)
def after_interned(problem: DimSpecProblem) -> "Prepared[Decision]":
    """The same release, its conversions answered by `interned`."""
    return _asked(problem, _AFTER, answered_by="interned")


def _asked(
    problem: DimSpecProblem, release: str, answered_by: str = "colossalai"
) -> Prepared[Decision]:
    if isinstance(problem, ConstructorProblem):
        request: dict[str, Any] = {
            "kind": "constructor",
            "model": problem.model,
            "mesh_shape": problem.mesh.shape,
        }
        read: Callable[[dict[str, Any]], Decision] = _construction
    else:
        stream = problem.stream
        request = {"kind": "stream", **_written(stream)}

        def read(answer: dict[str, Any]) -> Decision:
            return _answers(stream, answer)

    upstream = Upstream(release, _DRIVER)

    def run() -> Measured[Decision]:
        answer = upstream.ask(request | {"answered_by": answered_by, "count": is_observing()})
        return Measured(
            read(answer), answer["wall_s"], answer["cpu_s"], counters=answer["counters"]
        )

    return Prepared(run, close=upstream.close)


def _construction(answer: dict[str, Any]) -> Construction:
    return Construction(
        answer["fingerprint"][:16],
        answer["nodes"],
        answer["strategies"],
        answer["resharding_costs"],
        answer["total_resharding_cost"],
    )


class _Spec(NamedTuple):
    """A sharding spec as it came out of the other process."""

    mesh: Mesh
    shape: tuple[int, ...]
    partition: Partition


def _written(stream: Stream) -> dict[str, Any]:
    meshes = list(dict.fromkeys(question.mesh for question in stream.questions))
    return {
        "meshes": [
            {"shape": mesh.shape, "alpha": mesh.alpha, "beta": mesh.beta} for mesh in meshes
        ],
        "questions": [
            {
                "mesh": meshes.index(question.mesh),
                "shape": question.shape,
                "source": question.source,
                "target": question.target,
            }
            for question in stream.questions
        ],
        "sequence": list(stream.sequence),
    }


def _answers(stream: Stream, answer: dict[str, Any]) -> Answers:
    conversions = [
        Conversion(
            tuple(
                _Spec(
                    question.mesh,
                    question.shape,
                    tuple((dim, tuple(axes)) for dim, axes in partition),
                )
                for partition in told["path"]
            ),
            tuple(CommSpec(Pattern(name), *where) for name, *where in told["comms"]),
            Cost(*told["cost"]),
        )
        for question, told in zip(stream.questions, answer["answers"], strict=True)
    ]
    return Answers(conversions, answer["costs"])
