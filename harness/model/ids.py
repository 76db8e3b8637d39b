"""Ids of workloads, problems and cells, with one text form for commands and files."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.errors import UsageError

_SPEC = re.compile(r"(?P<name>[^\[\]@]+)(?:\[(?P<parameters>[^\[\]]*)\])?")
_PROBLEM = re.compile(r"(?P<workload>.+)/(?P<topology>[^/:@]+):(?P<gpus>[0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A workload's name and parameters, e.g. `synthetic[tables=200,seed=7]`."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "WorkloadSpec":
        """Parse `name` or `name[key=value,...]`. Raise UsageError for any other text."""
        match = _SPEC.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"Workload '{text}' is malformed; write name or name[key=value,...], "
                "e.g. synthetic[tables=200,seed=7]."
            )
        parameters: dict[str, str] = {}
        for item in filter(None, (match["parameters"] or "").split(",")):
            key, separator, value = (part.strip() for part in item.partition("="))
            if not (separator and key and value):
                raise UsageError(f"Parameter '{item}' of workload '{text}' must be key=value.")
            if key in parameters:
                raise UsageError(f"Parameter '{key}' of workload '{text}' is given twice.")
            parameters[key] = value
        return cls(match["name"].strip(), parameters)

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return (
            f"{self.name}[{','.join(f'{key}={value}' for key, value in self.parameters.items())}]"
        )

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.parameters.items())))

    def of_file(self, content: bytes) -> "WorkloadSpec":
        """Return the specification under which results store a file: `BASENAME#HASH`.

        The hash is of `content`, the bytes of the file. The parameters are unchanged.
        """
        digest = hashlib.sha256(content).hexdigest()[:8]
        return WorkloadSpec(f"{Path(self.name).name}#{digest}", self.parameters)


@dataclass(frozen=True, slots=True)
class ProblemId:
    """A workload on a topology with a number of GPUs, e.g. `dlrm-856/dgx_h100:16`."""

    workload: WorkloadSpec
    topology: str
    gpus: int

    @classmethod
    def parse(cls, text: str) -> "ProblemId":
        """Parse `workload/topology:gpus`. Raise UsageError for any other text."""
        match = _PROBLEM.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"Problem '{text}' is malformed; write workload/topology:gpus, "
                "e.g. dlrm-856/dgx_h100:16."
            )
        try:
            gpus = int(match["gpus"])
        except ValueError:  # more digits than Python converts
            raise UsageError(f"Problem '{text}' asks for more GPUs than can be counted.") from None
        return cls(WorkloadSpec.parse(match["workload"]), match["topology"], gpus)

    def __str__(self) -> str:
        return f"{self.workload}/{self.topology}:{self.gpus}"


@dataclass(frozen=True, slots=True)
class CellId:
    """A variant of a family on a problem: the unit that is run, stored and reported."""

    family: str
    variant: str
    problem: ProblemId

    @classmethod
    def parse(cls, text: str) -> "CellId":
        """Parse `family/variant@workload/topology:gpus`. Raise UsageError for any other text."""
        planner, _, problem = text.partition("@")
        family, _, variant = planner.partition("/")
        if not (family and variant and problem):
            raise UsageError(
                f"Cell '{text}' is malformed; write family/variant@workload/topology:gpus."
            )
        return cls(family, variant, ProblemId.parse(problem))

    def __str__(self) -> str:
        return f"{self.family}/{self.variant}@{self.problem}"

    @property
    def file_stem(self) -> str:
        """The id as a file name, with `-` for characters that some file systems forbid."""
        return re.sub(r"[^A-Za-z0-9_.=-]+", "-", str(self)).strip("-")


def whole_number(text: str) -> int:
    """Convert ASCII digits to an int. Raise ValueError for any other text."""
    # int() also accepts 1_000, +5 and digits of other scripts; each would make a different id.
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
