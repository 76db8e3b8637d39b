"""Capture the conversions that ColossalAI makes, in this process or in a child process.

    with capture("dimspec", "mlp2.json.gz"):
        record("mlp2", (2, 2))

writes the conversions of a model of this family to a file. It needs `make upstreams`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from harness.contract import Names, ShardbenchError, Upstream, UsageError

_DRIVER = Path(__file__).parent / "upstream" / "driver.py"
_RELEASE = "colossalai-0.4.1"

_switch = Lock()
_recorded: list[dict[str, Any]] = []


@contextmanager
def capturing(names: Names) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Record the conversions made in the `with` block; raises UsageError if another runs."""
    if not _switch.acquire(blocking=False):
        raise UsageError("A stream is captured already; leave that one first.")
    try:
        with _recording() as here:

            def content() -> Mapping[str, Any]:
                streams = [*_recorded]
                if here is not None and here.sequence:
                    streams.append(here.content())
                if not streams:
                    raise ShardbenchError("ColossalAI was asked for no conversion inside.")
                if len(streams) > 1:
                    raise ShardbenchError(f"a file holds one stream, not {len(streams)}.")
                if "model" in streams[0]:
                    streams[0]["model"] = names.written([streams[0]["model"]]).popitem()[1]
                return streams[0]

            yield content
    finally:
        _recorded.clear()
        _switch.release()


def _recording() -> AbstractContextManager[Any]:
    """Return a context that records this process; it yields None if ColossalAI is missing."""
    if not find_spec("colossalai"):
        return nullcontext()
    from planners.dimspec.upstream.recording import recording

    return recording()


def record(model: str, mesh_shape: Sequence[int], release: str = _RELEASE) -> None:
    """Capture the conversions that a real ColossalAI makes for a model, in a child process.

    `model` is a name of `workloads.MODELS`, and `release` names a folder made by `make upstreams`.
    Raises UsageError outside `capture`, and ShardbenchError if the release is not installed.
    """
    if not _switch.locked():
        raise UsageError('Record inside `with capture("dimspec", FILE):`.')
    with Upstream(release, _DRIVER) as upstream:
        request = {"kind": "record", "model": model, "mesh_shape": list(mesh_shape)}
        _recorded.append(upstream.ask(request))
