"""Files written whole or not at all."""

import os
import shutil
from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> Path:
    """Write a file whole or not at all; what is there and is no file, a device, is written to."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return path
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    except (OSError, ValueError):
        partial.unlink(missing_ok=True)
        raise
    return path
