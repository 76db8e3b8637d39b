"""Suites that are declared: by families, in TOML files, and in a record's `suite.toml`."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.declared import Name, checked
from harness.model.errors import UsageError, unknown
from harness.model.files import read_toml, to_json
from harness.model.ids import ProblemId, WorkloadSpec
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from harness.model.topology import CAPTURED, Topology
from harness.topologies.lookup import placed_on

Texts = Annotated[tuple[Name, ...], Meta(min_length=1)]
Values = Annotated[tuple[Name | int | float, ...], Meta(min_length=1)]
_Seconds = Annotated[float, Meta(gt=0)]
_Gib = Annotated[float, Meta(gt=0)]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
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
        used = _placeholders([*self.workloads, *self.topologies])
        for key in used:
            if key not in matrix:
                raise unknown("key of [study.matrix],", key, matrix)
        for key in matrix:
            if key not in used:
                raise UsageError(
                    f"'matrix.{key}' is used nowhere; write {{{key}}} in a workload or a topology."
                )
        problems = dict.fromkeys(
            filled
            for pair in itertools.product(self.workloads, self.topologies)
            for filled in _filled_in(pair, matrix)
        )
        for workload, topology in problems:
            spec = WorkloadSpec.parse(workload)
            family.label(spec)  # raises UsageError if the workload does not exist
            placed = _topology(family, spec, topology)
            yield Request(family, spec, placed, variants, against, self.purpose)


def _placeholders(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(key for text in texts for key in _PLACEHOLDER.findall(text)))


def _filled_in(
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


class _SuiteFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The structure of a suite file."""

    study: Annotated[list[Any], Meta(min_length=1)]
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None


def read_suite(path: Path, registry: Registry) -> tuple[str, list[Request]]:
    """Return the name of a suite file, and its requests.

    Its paths of workloads and topologies are relative to the working folder. The name becomes that
    of a file of results. Raise UsageError for an unknown key or name or a value of a wrong type;
    the message names the file and the number of the study.
    """
    file = checked(read_toml(path), _SuiteFile, str(path))
    requests: list[Request] = []
    for number, study in enumerate(file.study, start=1):
        called = f"{path}: study {number}"
        declared = checked(study, SuiteStudy, called)
        with _naming(called):
            requests += declared.requests(registry)
    with _naming(str(path)):
        return file.name or path.stem, merged(requests)


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Put the place in front of the message of a UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


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


def request_on(family: Family[Any, Any], problem: ProblemId, *rest: Any, **named: Any) -> Request:
    """Return the request with these other fields on a family's problem.

    Raise UsageError for an unknown topology.
    """
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    return Request(family, problem.workload, topology, *rest, **named)


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


class RecordedStudy(SuiteStudy, frozen=True, forbid_unknown_fields=True):
    """A study with settings of its own; with `once` each variant is called once or twice.

    `gib` is the memory that a call needs; see `Record.measure`. `order` is as in `RecordedTable`.
    """

    seconds: _Seconds = 20.0
    budget: _Seconds = 300.0
    once: bool = False
    gib: _Gib = 2.0
    order: int = 0

    def settings(self) -> Settings:
        """Return the settings to measure with."""
        rule = SamplingRule(seconds=self.seconds, once=self.once)
        return Settings(self.budget, rule, max(SETUP_SECONDS, self.budget))


class RecordedCommits(Struct, frozen=True, forbid_unknown_fields=True):
    """Commits of a library by label, each timed `repeat` times on one problem, counted, or both.

    `gib` is the memory that a call needs; see `Record.measure`.
    """

    library: Name
    problem: Name
    commits: Annotated[dict[str, Name], Meta(min_length=1)]
    planner: str = ""
    counted: bool = False
    repeat: Annotated[int, Meta(ge=0)] = 2
    budget: _Seconds = 3600.0
    gib: _Gib = 2.0

    def __post_init__(self) -> None:
        if not (self.repeat or self.counted):
            raise ValueError("'repeat' must be at least 1, unless 'counted' is true")


class RecordedProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of flame graphs: of a variant, or of two and their difference."""

    family: Name
    problem: Name
    variants: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]
    seconds: _Seconds = 4.0


class RecordedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of Markdown that a script prints.

    Attributes:
        script: the script's path from the root of the repository; the table has its base name.
        family: the family that it measures.
        arguments: the script's arguments.
        budget: its time in seconds, at most.
        order: its place among all parts; the lowest comes first.
    """

    script: Name
    family: Name
    arguments: tuple[str, ...] = ()
    budget: _Seconds = 3600.0
    order: int = 0

    @property
    def name(self) -> str:
        """The name of the table."""
        return Path(self.script).stem


class RecordedSuite(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a record's `suite.toml`; `highlights` are the cells to show first."""

    highlights: tuple[Name, ...] = ()

    study: tuple[RecordedStudy, ...] = ()
    commits: tuple[RecordedCommits, ...] = ()
    profile: tuple[RecordedProfile, ...] = ()
    table: tuple[RecordedTable, ...] = ()


def read_recorded(path: Path, device: str = "") -> RecordedSuite:
    """Read a record's suite in which `{device}` stands for a device; raises UsageError.

    A suite that has no `{device}` is for no device, and every other suite needs one.
    """
    document = read_toml(path)
    text = to_json(document)
    filled = msgspec.json.decode(text.replace("{device}", device))
    if device and filled == document:
        raise UsageError(f"{path} has no {{device}} in it, so it takes no --device.")
    if "{device}" in text and not device:
        raise UsageError(f"{path} measures a device; add --device cuda or --device cpu.")
    return checked(filled, RecordedSuite, str(path))
