"""Profiles of a variant's calls by pyinstrument: a flame graph, a speedscope file, a text tree."""

import re
from pathlib import Path
from typing import Any

from pyinstrument import Profiler, processors
from pyinstrument.renderers import ConsoleRenderer, HTMLRenderer, SpeedscopeRenderer

from harness.clock import Clock
from harness.errors import ShardbenchError
from harness.registry import Prepared

_INTERVAL_SECONDS = 0.001
# Short calls repeat until this much is sampled: a thousand samples show shares of a few per cent.
_LEAST_SECONDS = 1.0
_MOST_CALLS = 1000
# Frames below this share of the whole are left out of the text tree.
_SMALLEST_SHARE = 0.02
_WEB_FONTS = re.compile(r"https://fonts\.googleapis\.com/[^\"]*")


def profile(prepared: Prepared[Any], clock: Clock, title: str) -> dict[str, str]:
    """Profile calls of a prepared variant, after one that warms up.

    Returns the text of three files by suffix: `html` (offline, one file), `speedscope.json`, `txt`.
    Profiling slows dense Python code two- to threefold: read shares from it, never times.
    """
    profiler = Profiler(interval=_INTERVAL_SECONDS, async_mode="disabled")
    with prepared.installed():
        prepared.begin()
        prepared.run()
        started = clock.wall()
        for _ in range(_MOST_CALLS):
            prepared.begin()
            profiler.start(target_description=title)
            try:
                prepared.run()
            finally:
                profiler.stop()
            if clock.wall() - started >= _LEAST_SECONDS:
                break
    session = profiler.last_session
    assert session is not None
    return {
        # pyinstrument's page asks for two fonts from the network; it does as well without.
        "html": _WEB_FONTS.sub("data:text/css,", HTMLRenderer().render(session)),
        "speedscope.json": SpeedscopeRenderer().render(session),
        "txt": _text_renderer().render(session),
    }


def _text_renderer() -> ConsoleRenderer:
    """Show the frames of libraries too: they are what is profiled here."""
    renderer = ConsoleRenderer(
        unicode=True, processor_options={"filter_threshold": _SMALLEST_SHARE}
    )
    renderer.processors.remove(processors.group_library_frames_processor)
    return renderer


def write_files(files: dict[str, str], stem: Path) -> list[Path]:
    """Write each text to `stem` with its suffix; raises ShardbenchError where that fails."""
    written = []
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix, text in files.items():
            written.append(replace_file(stem.with_name(f"{stem.name}.{suffix}"), text))
    except OSError as error:
        raise ShardbenchError(f"The profile cannot be written: {error}.") from None
    return written


def replace_file(path: Path, text: str) -> Path:
    """Write a file whole or not at all; what is there and is no file, a device, is written to."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return path
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except (OSError, ValueError):
        partial.unlink(missing_ok=True)
        raise
    return path
