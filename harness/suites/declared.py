"""Suites of requests: those that families register, and those in TOML files."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.request import Request, request_on
from harness.model.declared import Name, checked
from harness.model.errors import UsageError, unknown
from harness.model.files import read_toml
from harness.model.ids import ProblemId, WorkloadSpec, whole_number
from harness.model.topology import CAPTURED, Topology
from harness.topologies.lookup import placed_on

Texts = Annotated[tuple[Name, ...], Meta(min_length=1)]
Values = Annotated[tuple[Name | int | float, ...], Meta(min_length=1)]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MOST_COMBINATIONS = 100_000


def registered_requests(families: Iterable[Family[Any, Any]], large: bool = False) -> list[Request]:
    """Return requests for the studies that families register; with `large` the large ones too.

    Raise UsageError if a study has an unknown variant or topology.
    """
    return merged(
        request_on(
            family,
            ProblemId.parse(study.problem),
            (*study.variants, *study.counted),
            study.against or family.reference.name,
            study.purpose,
            study.counted,
        )
        for family in families
        for study in family.studies
        if large or not study.large
    )


def merged(requests: Iterable[Request]) -> list[Request]:
    """Merge the requests for the same problem, so that no cell is measured twice.

    Raise UsageError if they compare with different variants, since their cells would have equal
    ids.
    """
    by_problem: dict[tuple[str, ProblemId], Request] = {}
    for request in requests:
        key = (request.family.name, request.problem)
        first = by_problem.setdefault(key, request)
        if first.against != request.against:
            raise UsageError(
                f"'{request.given}' is to be compared with '{first.against}' and with "
                f"'{request.against}'; a problem can be compared with one variant in a suite."
            )
        variants = tuple(dict.fromkeys((*first.variants, *request.variants)))
        timed = {name for r in (first, request) for name in r.variants if name not in r.counted}
        counted = tuple(name for name in variants if name not in timed)
        by_problem[key] = replace(first, variants=variants, counted=counted)
    return list(by_problem.values())


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
        variants = tuple(family.variants) if self.variants == "all" else self.variants
        against = self.against or family.reference.name
        for workload, text in dict.fromkeys(self._problems()):
            spec = WorkloadSpec.parse(workload)
            family.label(spec)  # raises UsageError if the workload does not exist
            topology = _topology(family, spec, text)
            request = Request(family, spec, topology, variants, against, self.purpose)
            request.names()  # raises for an unknown variant
            yield request

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Yield workload and topology for each combination of values; some come several times."""
        used = _PLACEHOLDER.findall(" ".join((*self.workloads, *self.topologies)))
        for key in used:
            if key not in self.matrix:
                raise unknown("key of [study.matrix],", key, self.matrix)
        for key in self.matrix:
            if key not in used:
                raise UsageError(
                    f"'matrix.{key}' is used nowhere; write {{{key}}} in a workload or a topology."
                )
        count = math.prod(map(len, self.matrix.values()))
        if count > _MOST_COMBINATIONS:
            raise UsageError(f"A matrix makes at most {_MOST_COMBINATIONS} problems, not {count}.")
        for pair in itertools.product(self.workloads, self.topologies):
            for values in itertools.product(*self.matrix.values()):
                workload, topology = pair
                for key, value in zip(self.matrix, values, strict=True):
                    workload = workload.replace(f"{{{key}}}", str(value))
                    topology = topology.replace(f"{{{key}}}", str(value))
                yield workload, topology


def _topology(family: Family[Any, Any], workload: WorkloadSpec, text: str) -> Topology:
    if text == CAPTURED:
        return placed_on(family, workload, text)
    name, _, number = text.rpartition(":")
    try:
        gpus = whole_number(number)
    except ValueError:
        raise UsageError(f"Topology '{text}' must be name:gpus, e.g. dgx_h100:16.") from None
    return placed_on(family, workload, name, gpus)


class _SuiteFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The structure of a suite file."""

    study: Annotated[tuple[SuiteStudy, ...], Meta(min_length=1)]
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None


def read_suite(path: Path, registry: Registry) -> tuple[str, list[Request]]:
    """Return the name of a suite file, and its requests.

    Its paths of workloads and topologies are relative to the working folder. The name becomes that
    of a file of results. Raise UsageError with the file's name for an unknown key or name or a
    value of a wrong type.
    """
    file = checked(read_toml(path), _SuiteFile, str(path))
    try:
        requests = merged(request for study in file.study for request in study.requests(registry))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return file.name or path.stem, requests
