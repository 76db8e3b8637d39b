"""Expectations and suites: any content is read or refused in one sentence that names the file."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hostile import change, changes, read_or_refused
from hypothesis import given, settings, strategies as st

from harness.contract.registry import load_registry
from harness.gate.expectations import load_expectations
from harness.suites.declared import read_suite

EXPECTATIONS = """
schema = 1
ratio_slack = 1.5
quality_tolerance = 1e-09
ignore = ["counters.cache_bytes"]

[made_with]
python = "3.11.7"
packages.torch = "2.13.0+cpu"

[cell."dimspec/interned@all-pairs[rank=3,mesh=2x2]/dgx_a100_80gb:4"]
against = "eager-dict"
status = "ok"
decision = "same"
fingerprint = "1c43c990d27fcf7e"
quality.cost_millions = 28.24509150000006
counters.expansions = 22
ratio = [0.0041, 0.0358]
"""
SUITE = """
name = "a-suite"

[[study]]
family = "reshard"
variants = ["indexed"]
workloads = ["transformer[layers={layers}]"]
topologies = ["dgx_a100_80gb:4"]
against = "sync-each"
purpose = "why"

[study.matrix]
layers = [2, 4]
"""
READERS = {
    "expectations": (EXPECTATIONS, load_expectations),
    "suite": (SUITE, lambda path: read_suite(path, load_registry())),
}
kinds = pytest.mark.parametrize("kind", READERS)


def in_toml(value: Any) -> str:
    """Return any document of plain values as one line of TOML, if TOML can express it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_toml(str(k))} = {in_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    text = str(value).encode("utf-8", "replace").decode()
    return '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'


def read(kind: str, folder: Path, content: bytes) -> Any:
    path = folder / "mine.toml"
    path.write_bytes(content)
    return read_or_refused(lambda: READERS[kind][1](path), path.name)


@kinds
@given(data=st.data())
@settings(max_examples=15)
def test_any_bytes_and_any_change_of_what_is_valid(kind, data, folder):
    """Damaged text, and another document of the same form."""
    text = READERS[kind][0].encode()
    at = data.draw(st.integers(0, len(text)))
    put = data.draw(st.binary(max_size=20))
    assert read(kind, folder, text) is not None
    read(kind, folder, data.draw(st.sampled_from([put, text[:at] + put + text[at:]])))
    document = tomllib.loads(READERS[kind][0])
    change(document, data.draw(changes(document)))
    lines = [f"{in_toml(str(key))} = {in_toml(value)}\n" for key, value in document.items()]
    read(kind, folder, "".join(lines).encode())


@kinds
@pytest.mark.parametrize("content", [b"schema = " + b"[" * 10_000, b"a." * 1_000 + b"b = 1"])
def test_deep_nesting_is_refused(kind, content, tmp_path):
    """Nesting that Python's own parser cannot follow is no crash."""
    assert read(kind, tmp_path, content) is None
