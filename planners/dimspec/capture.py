"""What ColossalAI is asked for inside `shardbench.capture`: in this process, or in one of its own.

    with capture("dimspec", "mlp2.json.gz"):
        record("mlp2", (2, 2))

writes the stream of a model that comes with the family, where `make upstreams` has been.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
    """Record every conversion until left; UsageError where a stream is captured already."""
    if not _switch.acquire(blocking=False):
        raise UsageError("A stream is captured already; leave that one first.")
    try:
        with _recording() if find_spec("colossalai") else nullcontext() as here:

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


def _recording() -> Any:
    """Return what records this process, which has ColossalAI."""
    from planners.dimspec.upstream.recording import recording

    return recording()


def record(model: str, mesh_shape: Sequence[int], release: str = _RELEASE) -> None:
    """Have a real ColossalAI make a model's strategies, in a process of its own, and capture that.

    The model is one that comes with the family, such as `resnet50`, the release a folder that
    `make upstreams` made. Raises UsageError outside of `capture`, ShardbenchError without them.
    """
    if not _switch.locked():
        raise UsageError('Record inside `with capture("dimspec", FILE):`.')
    with Upstream(release, _DRIVER) as upstream:
        request = {"kind": "record", "model": model, "mesh_shape": list(mesh_shape)}
        _recorded.append(upstream.ask(request))
