"""Drives one release of ColossalAI's planner, in a child process that has it on its import path.

`harness.contract.Upstream` asks. What is timed is timed here, and counters are taken in a request
of their own, since they slow down what they count.
"""

from typing import Any

from planners.dimspec.upstream import stubs

stubs.install()


def stream(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a stream of conversions; `upstream.stream.answer` says how."""
    from planners.dimspec.upstream.stream import answer

    return answer(request)


def constructor(request: dict[str, Any]) -> dict[str, Any]:
    """Build all strategies of a model; `upstream.constructor.answer` says how."""
    from planners.dimspec.upstream.constructor import answer

    return answer(request)


def record(request: dict[str, Any]) -> dict[str, Any]:
    """Build them and return every conversion asked for; `upstream.recording.answer` says how."""
    from planners.dimspec.capture.recording import answer

    return answer(request)


HANDLERS = {"stream": stream, "constructor": constructor, "record": record}
