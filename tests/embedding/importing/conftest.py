"""Fixtures that write files and modules to import tables from."""

import sys
import textwrap

import pytest


@pytest.fixture
def source(tmp_path):
    def write(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = iter(range(100))
    made = []

    def write(code: str) -> str:
        name = f"made_up_model_{next(numbers)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        made.append(name)
        return f"{name}:build"

    yield write
    for name in made:
        sys.modules.pop(name, None)
