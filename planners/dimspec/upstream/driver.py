"""Drive one release of ColossalAI's planner, in a child process with it on the import path.

`harness.contract.Upstream` sends the requests. Times are taken here, and counters in a request of
their own, since counting slows the calls.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from planners.dimspec.upstream import stubs

stubs.install()


def _handler(module: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the `answer` of a module, which is imported on the first request."""
    return lambda request: import_module(module).answer(request)


HANDLERS = {
    "stream": _handler("planners.dimspec.upstream.stream"),
    "constructor": _handler("planners.dimspec.upstream.constructor"),
    "record": _handler("planners.dimspec.upstream.recording"),
}
