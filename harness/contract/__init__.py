"""The contract between planners and the harness: all that the author of a planner needs."""

from harness.contract.abilities.captured_file import Names
from harness.contract.abilities.explanation import Explanation, Question, Section
from harness.contract.abilities.inventory import (
    Column,
    Imported,
    Importing,
    ImportRequest,
    Inventory,
)
from harness.contract.abilities.series import Commits, Releases, Series
from harness.contract.abilities.topology import LibraryTopology, TopologyRow, TopologyTrap
from harness.contract.declarations import Counter, Moving, Planning, Study, Workload
from harness.contract.family import Abilities, Family, Implementation
from harness.contract.recorder import Recorder, is_observing
from harness.contract.supported_releases import SupportedReleases
from harness.contract.variants import Measured, Prepared
from harness.execution.upstream import Upstream
from harness.model.cell import Claim, Goal, Progress, RankTable
from harness.model.errors import (
    InfeasibleDecision,
    NotApplicable,
    RegistryError,
    ShardbenchError,
    UsageError,
)
from harness.model.ids import WorkloadSpec
from harness.model.overview import OverviewRow
from harness.model.quality import Quality
from harness.model.topology import Topology

__all__ = [
    "Abilities",
    "Claim",
    "Column",
    "Commits",
    "Counter",
    "Explanation",
    "Family",
    "Goal",
    "Implementation",
    "ImportRequest",
    "Imported",
    "Importing",
    "InfeasibleDecision",
    "Inventory",
    "LibraryTopology",
    "Measured",
    "Moving",
    "Names",
    "NotApplicable",
    "OverviewRow",
    "Planning",
    "Prepared",
    "Progress",
    "Quality",
    "Question",
    "RankTable",
    "Recorder",
    "RegistryError",
    "Releases",
    "Section",
    "Series",
    "ShardbenchError",
    "Study",
    "SupportedReleases",
    "Topology",
    "TopologyRow",
    "TopologyTrap",
    "Upstream",
    "UsageError",
    "Workload",
    "WorkloadSpec",
    "is_observing",
]
