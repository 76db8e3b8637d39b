"""Files written whole or not at all."""

from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> Path:
    """Write a file whole or not at all; what is there and is no file, a device, is written to."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return path
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except (OSError, ValueError):
        partial.unlink(missing_ok=True)
        raise
    return path
