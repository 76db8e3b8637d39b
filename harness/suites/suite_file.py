"""Read suites from TOML files: studies of variants, workloads and topologies with parameters."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.declared import Name, checked
from harness.model.errors import UsageError, unknown
from harness.model.ids import WorkloadSpec
from harness.model.topology import CAPTURED, Topology
from harness.suites.expectations import read_toml
from harness.suites.sweep import merged
from harness.topologies.lookup import placed_on

Texts = Annotated[tuple[Name, ...], Meta(min_length=1)]
Values = Annotated[tuple[Name | int | float, ...], Meta(min_length=1)]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_PROBLEMS = 100_000


class SuiteStudy(Struct, frozen=True, forbid_unknown_fields=True):
    """A study of a suite: variants of a family on all pairs of workloads and topologies.

    `matrix` has the values for each placeholder, such as `{size}`, in workloads and topologies.
    """

    family: Name
    workloads: Texts
    topologies: Texts
    variants: Texts | Literal["all"] = "all"
    against: Name | Literal[""] = ""
    purpose: str = ""
    matrix: dict[str, Values] = field(default_factory=dict)

    def requests(self, registry: Registry) -> Iterator[Request]:
        """Yield a request for each problem of the study. Raise UsageError for an unknown name."""
        family = registry.find(self.family)
        against = family.find(self.against or family.reference.name).name
        chosen = family.variants if self.variants == "all" else self.variants
        variants = tuple(family.find(name).name for name in chosen)
        matrix = {key: [str(value) for value in values] for key, values in self.matrix.items()}
        _check_placeholders([*self.workloads, *self.topologies], matrix)
        problems = dict.fromkeys(
            filled
            for pair in itertools.product(self.workloads, self.topologies)
            for filled in _filled(pair, matrix)
        )
        for workload, topology in problems:
            spec = WorkloadSpec.parse(workload)
            family.label(spec)  # raises UsageError if the workload does not exist
            placed = _topology(family, spec, topology)
            yield Request(family, spec, placed, variants, against, self.purpose)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """The structure of a suite file."""

    study: Annotated[list[Any], Meta(min_length=1)]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """The content of a suite file: its name, and a request for each problem."""

    name: str
    requests: tuple[Request, ...]


def read_suite(path: Path, registry: Registry) -> Suite:
    """Read a suite file. Its paths of workloads and topologies are relative to the working folder.

    Raise UsageError for an unknown key or name or a value of a wrong type. The message names the
    file and the number of the study.
    """
    file = checked(read_toml(path), _File, str(path))
    name = file.name or path.stem
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: 'name' must be of letters, digits, '.', '_' and '-', since results are "
            "stored in a file of that name."
        )
    requests: list[Request] = []
    for number, study in enumerate(file.study, start=1):
        try:
            requests += checked(study, SuiteStudy, f"study {number}").requests(registry)
        except UsageError as error:
            reason = str(error).removeprefix(f"study {number}: ")
            raise UsageError(f"{path}: study {number}: {reason}") from None
    try:
        return Suite(name, tuple(merged(requests)))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


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
    """Yield the workload and topology for each combination of the values of their placeholders."""
    keys = _placeholders(pair)
    combinations = math.prod(len(matrix[key]) for key in keys)
    if combinations > _MOST_PROBLEMS:
        raise UsageError(f"A matrix makes at most {_MOST_PROBLEMS} problems, not {combinations}.")
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
