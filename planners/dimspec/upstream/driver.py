"""Drives one release of ColossalAI's planner, in a child process that has it on its import path.

`harness.contract.Upstream` asks. What is timed is timed here, and counters are taken in a request
of their own, since they slow down what they count.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from planners.dimspec.upstream import stubs

stubs.install()


def _handler(module: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the `answer` of a module, which is imported when it is first asked."""
    return lambda request: import_module(module).answer(request)


HANDLERS = {
    "stream": _handler("planners.dimspec.upstream.stream"),
    "constructor": _handler("planners.dimspec.upstream.constructor"),
    "record": _handler("planners.dimspec.capture.recording"),
}
