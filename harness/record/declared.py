"""The declared suite of a record: studies, commits, profiles and tables."""

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from harness.model.declared import Name, checked
from harness.model.errors import UsageError
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from harness.suites.expectations import read_toml
from harness.suites.suite_file import SuiteStudy

_Seconds = Annotated[float, Meta(gt=0)]
_Gib = Annotated[float, Meta(gt=0)]


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


def read_declared(path: Path, device: str = "") -> RecordedSuite:
    """Read a suite in which `{device}` stands for a device; raises UsageError.

    A suite that has no `{device}` is for no device, and every other suite needs one.
    """
    held = read_toml(path)
    filled = _filled(held, device)
    if device and filled == held:
        raise UsageError(f"{path} has no {{device}} in it, so it takes no --device.")
    if not device and filled != held:
        raise UsageError(f"{path} measures a device; add --device cuda or --device cpu.")
    return checked(filled, RecordedSuite, str(path))


def _filled(value: Any, device: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(held, device) for key, held in value.items()}
    if isinstance(value, list):
        return [_filled(held, device) for held in value]
    return value.replace("{device}", device) if isinstance(value, str) else value
