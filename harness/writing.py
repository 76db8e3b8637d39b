"""Files written whole or not at all."""

from pathlib import Path


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
