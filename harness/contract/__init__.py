"""The contract between planners and the harness: everything that a planner's author imports."""

from harness.contract.abilities.captured_file import (
    Names,
    is_captured_file,
    labelled,
    read_captured,
    write_captured,
)
from harness.contract.abilities.estimates import (
    BenchOptions,
    Candidate,
    CandidateSet,
    Design,
    FittedFigure,
    FittedMachine,
    FormError,
    MemoryCandidate,
    MemorySet,
    RankMemory,
    RankWork,
    TimedWork,
    Workbench,
)
from harness.contract.abilities.explanation import Explanation, Question, Section
from harness.contract.abilities.inventory import (
    Column,
    Imported,
    Importing,
    ImportRequest,
    Inventory,
)
from harness.contract.abilities.remedies import Remedies, Remedy
from harness.contract.abilities.series import Commits, Releases, Series
from harness.contract.abilities.topology import LibraryTopology, TopologyRow, TopologyTrap
from harness.contract.calls import count_calls
from harness.contract.declarations import Counter, Moving, Planning, Study, Workload
from harness.contract.family import Abilities, Family, Implementation
from harness.contract.parameters import (
    CAPTURED_FILE,
    Count,
    Parameters,
    Seed,
    read_parameters,
    workload_parameters,
)
from harness.contract.recorder import Recorder, is_observing
from harness.contract.supported_releases import SupportedReleases
from harness.contract.variants import Measured, Prepared
from harness.execution.upstream import Upstream
from harness.model.cell import Claim, Progress, RankTable
from harness.model.declared import checked
from harness.model.errors import (
    InfeasibleDecision,
    NotApplicable,
    RegistryError,
    ShardbenchError,
    UsageError,
    one_line,
    printable,
    unknown,
)
from harness.model.files import read_file, read_json, replace_file
from harness.model.ids import WorkloadSpec
from harness.model.machine import default_memory_gib
from harness.model.overview import Goal, OverviewRow
from harness.model.quality import Quality
from harness.model.topology import CAPTURED, Topology, captured_topology

__all__ = [
    "CAPTURED",
    "CAPTURED_FILE",
    "Abilities",
    "BenchOptions",
    "Candidate",
    "CandidateSet",
    "Claim",
    "Column",
    "Commits",
    "Count",
    "Counter",
    "Design",
    "Explanation",
    "Family",
    "FittedFigure",
    "FittedMachine",
    "FormError",
    "Goal",
    "Implementation",
    "ImportRequest",
    "Imported",
    "Importing",
    "InfeasibleDecision",
    "Inventory",
    "LibraryTopology",
    "Measured",
    "MemoryCandidate",
    "MemorySet",
    "Moving",
    "Names",
    "NotApplicable",
    "OverviewRow",
    "Parameters",
    "Planning",
    "Prepared",
    "Progress",
    "Quality",
    "Question",
    "RankMemory",
    "RankTable",
    "RankWork",
    "Recorder",
    "RegistryError",
    "Releases",
    "Remedies",
    "Remedy",
    "Section",
    "Seed",
    "Series",
    "ShardbenchError",
    "Study",
    "SupportedReleases",
    "TimedWork",
    "Topology",
    "TopologyRow",
    "TopologyTrap",
    "Upstream",
    "UsageError",
    "Workbench",
    "Workload",
    "WorkloadSpec",
    "captured_topology",
    "checked",
    "count_calls",
    "default_memory_gib",
    "is_captured_file",
    "is_observing",
    "labelled",
    "one_line",
    "printable",
    "read_captured",
    "read_file",
    "read_json",
    "read_parameters",
    "replace_file",
    "unknown",
    "workload_parameters",
    "write_captured",
]
