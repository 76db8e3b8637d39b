"""Fixtures that write files and modules to import tables from."""

import textwrap
from uuid import uuid4

import pytest


@pytest.fixture
def source(tmp_path):
    def write(text: str, name: str = "mine.csv") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(code: str) -> str:
        name = f"model_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        return f"{name}:build"

    return write
