"""Suites in TOML: families, variants, workloads, topologies, and a matrix of what they vary by."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError, unknown
from harness.model.topology import CAPTURED, Topology
from harness.naming import WorkloadSpec
from harness.reading import read_file
from harness.registry import Family, Registry
from harness.sweeps.sweep import Step, merged
from harness.topologies.lookup import placed_on

ALL = "all"

_SUITE_KEYS = ("name", "study")
_STUDY_KEYS = ("family", "variants", "workloads", "topologies", "against", "purpose", "matrix")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite as it was read: its name, and a step for each problem that it asks for."""

    name: str
    steps: tuple[Step, ...]


def read_suite(path: Path, registry: Registry) -> Suite:
    """Read a suite; paths of workloads and topologies in it start from the working directory.

    Raises:
        UsageError: the file cannot be read, a key or a name in it is not known, or a value is not
            of its type; names the file, and the study by its number.
    """
    try:
        document = tomllib.loads(read_file(path).decode())
    except (ValueError, RecursionError) as error:  # tomllib's own error is a ValueError
        raise UsageError(f"{path} is not TOML: {' '.join(str(error).split())}.") from None
    try:
        return _suite(document, path.stem, registry)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _suite(document: Mapping[str, Any], stem: str, registry: Registry) -> Suite:
    _check_keys(document, _SUITE_KEYS, "key of a suite")
    name = document.get("name", stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            "'name' must be of letters, digits, '.', '_' and '-', since results are stored in a "
            "file of that name."
        )
    studies = document.get("study")
    if not isinstance(studies, list) or not studies:
        raise UsageError("There must be a [[study]], at least one.")
    steps: list[Step] = []
    for number, study in enumerate(studies, start=1):
        try:
            if not isinstance(study, dict):
                raise UsageError("It must be a table, written as [[study]].")
            steps += _steps(study, registry)
        except UsageError as error:
            raise UsageError(f"study {number}: {error}") from None
    return Suite(name, tuple(merged(steps)))


def _steps(study: Mapping[str, Any], registry: Registry) -> Iterator[Step]:
    _check_keys(study, _STUDY_KEYS, "key of a study")
    family = registry.find(_text(study, "family"))
    against = family.find(_text(study, "against", family.reference.name)).name
    variants = tuple(family.variants)
    if study.get("variants", ALL) != ALL:
        variants = tuple(family.find(name).name for name in _texts(study, "variants"))
    workloads, topologies = _texts(study, "workloads"), _texts(study, "topologies")
    matrix = _matrix(study.get("matrix", {}))
    _check_placeholders([*workloads, *topologies], matrix)
    problems = dict.fromkeys(
        filled
        for pair in itertools.product(workloads, topologies)
        for filled in _filled(pair, matrix)
    )
    for workload, topology in problems:
        spec = WorkloadSpec.parse(workload)
        family.label(spec)  # raises where there is no such workload
        yield Step(
            family,
            spec,
            _topology(family, spec, topology),
            variants,
            against,
            _text(study, "purpose", ""),
        )


def _check_keys(table: Mapping[str, Any], allowed: Sequence[str], kind: str) -> None:
    for key in table:
        if key not in allowed:
            raise unknown(kind, key, allowed)


def _text(table: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"'{key}' must be {'a text' if key in table else 'given, as a text'}.")
    return value


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        also = f', or "{ALL}"' if key == "variants" else ""
        raise UsageError(f"'{key}' must be a list of texts, at least one{also}.")
    return value


def _matrix(table: Any) -> dict[str, list[str]]:
    if not isinstance(table, dict):
        raise UsageError("'matrix' must be a table, written as [study.matrix].")
    matrix = {}
    for key, values in table.items():
        if not isinstance(values, list) or not values or not all(map(_is_value, values)):
            raise UsageError(f"'matrix.{key}' must be a list of texts or numbers, at least one.")
        matrix[key] = [str(value) for value in values]
    return matrix


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _placeholders(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(key for text in texts for key in _PLACEHOLDER.findall(text)))


def _check_placeholders(texts: Sequence[str], matrix: Mapping[str, Sequence[str]]) -> None:
    used = _placeholders(texts)
    for key in used:
        if key not in matrix:
            raise unknown("key of [study.matrix],", key, matrix)
    for key in matrix:
        if key not in used:
            raise UsageError(
                f"'matrix.{key}' is used nowhere; write {{{key}}} in a workload or a topology."
            )


def _filled(
    pair: tuple[str, str], matrix: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield a workload and a topology with every combination of the values that they name."""
    keys = _placeholders(pair)
    combinations = 1
    for key in keys:
        combinations *= len(matrix[key])
    if combinations > _MOST_STEPS:
        raise UsageError(f"A matrix makes at most {_MOST_STEPS} problems, not {combinations}.")
    for values in itertools.product(*(matrix[key] for key in keys)):
        value_of = dict(zip(keys, values, strict=True))
        workload, topology = (
            _PLACEHOLDER.sub(lambda match: value_of[match[1]], text)  # noqa: B023 - called at once
            for text in pair
        )
        yield workload, topology


def _topology(family: Family[Any, Any], workload: WorkloadSpec, text: str) -> Topology:
    if text == CAPTURED:
        return placed_on(family, workload, text)
    name, _, gpus = text.rpartition(":")
    if not name or not (gpus.isascii() and gpus.isdigit()) or len(gpus) > 9:
        raise UsageError(f"Topology '{text}' must be name:gpus, e.g. dgx_h100:16.")
    return placed_on(family, workload, name, int(gpus))
