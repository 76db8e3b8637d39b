"""A report as a folder: written whole or not at all, over an earlier one and nothing else."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.model.errors import UsageError

GENERATOR = "shardbench report"

# What a report may hold; index.html last, since it marks a whole one.
_PARTS = ("figures", "data", "flames", "report.md", "index.html")


def write_folder(out: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a folder that exists, and put its parts into `out`; return the page there.

    An earlier report in `out` is replaced, other files stay. Nothing is touched if `write` fails.

    Raises:
        UsageError: `out` cannot be written, or holds files of these names that are no report.
    """
    out = out.resolve()
    _check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            write(fresh)
            _put_in_place(fresh, out, Path(scratch))
    except OSError as error:
        raise UsageError(f"Report folder '{out}' cannot be written: {error.strerror}.") from None
    return out / "index.html"


def _check_target(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"Report folder '{out}' is a file; name a folder.")
    page = out / "index.html"
    marked = page.is_file() and GENERATOR.encode() in page.read_bytes()[:1000]
    for name in _PARTS:
        if (out / name).exists() and not marked:
            raise UsageError(
                f"Folder '{out}' holds '{name}', which is not of a shardbench report; name another."
            )


def _put_in_place(fresh: Path, out: Path, scratch: Path) -> None:
    if not out.exists():
        fresh.rename(out)
        return
    for name in _PARTS:
        if (out / name).is_dir():
            (out / name).rename(scratch / f"old-{name}")
        if (fresh / name).exists():
            (fresh / name).replace(out / name)
