"""Run one release of ColossalAI's planner, in a child process that has it on the import path.

`harness.contract.Upstream` sends the requests. This process takes the times. Counters need a
separate request, because counting slows the calls.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from planners.dimspec.upstream import stubs

stubs.install()


def _handler(module: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a handler that imports `module` on the first request and calls its `answer`."""
    return lambda request: import_module(module).answer(request)


HANDLERS = {
    "stream": _handler("planners.dimspec.upstream.stream"),
    "constructor": _handler("planners.dimspec.upstream.constructor"),
    "record": _handler("planners.dimspec.upstream.recording"),
}
