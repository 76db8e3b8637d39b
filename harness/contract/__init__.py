"""The contract between planners and the harness: everything that a planner's author imports."""

from harness.contract.abilities.estimates import (
    BenchOptions as BenchOptions,
    Candidate as Candidate,
    CandidateSet as CandidateSet,
    Design as Design,
    FittedFigure as FittedFigure,
    FittedMachine as FittedMachine,
    FormError as FormError,
    MemoryCandidate as MemoryCandidate,
    MemorySet as MemorySet,
    RankMemory as RankMemory,
    RankWork as RankWork,
    TimedWork as TimedWork,
    Workbench as Workbench,
)
from harness.contract.abilities.plans import (
    Explanation as Explanation,
    Question as Question,
    Remedies as Remedies,
    Remedy as Remedy,
    Section as Section,
)
from harness.contract.abilities.series import (
    Commits as Commits,
    Driven as Driven,
    Releases as Releases,
    Series as Series,
)
from harness.contract.abilities.topology import (
    LibraryTopology as LibraryTopology,
    TopologyRow as TopologyRow,
    TopologyTrap as TopologyTrap,
)
from harness.contract.abilities.workloads import (
    Column as Column,
    Imported as Imported,
    ImportRequest as ImportRequest,
    Inventory as Inventory,
    Names as Names,
    is_captured_file as is_captured_file,
    labelled as labelled,
    read_captured as read_captured,
    write_captured as write_captured,
)
from harness.contract.calls import count_calls as count_calls
from harness.contract.declarations import (
    Counter as Counter,
    Moving as Moving,
    Planning as Planning,
    Study as Study,
    Workload as Workload,
)
from harness.contract.family import (
    Abilities as Abilities,
    Family as Family,
    Implementation as Implementation,
)
from harness.contract.parameters import (
    CAPTURED_FILE as CAPTURED_FILE,
    Count as Count,
    Parameters as Parameters,
    Seed as Seed,
    read_parameters as read_parameters,
    workload_parameters as workload_parameters,
)
from harness.contract.recorder import Recorder as Recorder, is_observing as is_observing
from harness.contract.supported_releases import SupportedReleases as SupportedReleases
from harness.contract.variants import Measured as Measured, Prepared as Prepared
from harness.execution.upstream import Upstream as Upstream
from harness.model.cell import Progress as Progress, RankTable as RankTable
from harness.model.declared import checked as checked
from harness.model.errors import (
    InfeasibleDecision as InfeasibleDecision,
    NotApplicable as NotApplicable,
    RegistryError as RegistryError,
    ShardbenchError as ShardbenchError,
    UsageError as UsageError,
    one_line as one_line,
    printable as printable,
    unknown as unknown,
)
from harness.model.files import (
    read_file as read_file,
    read_json as read_json,
    replace_file as replace_file,
)
from harness.model.ids import WorkloadSpec as WorkloadSpec
from harness.model.machine import default_memory_gib as default_memory_gib
from harness.model.quality import Quality as Quality
from harness.model.statement import (
    OTHERS as OTHERS,
    Claim as Claim,
    Pair as Pair,
    Statement as Statement,
)
from harness.model.topology import (
    CAPTURED as CAPTURED,
    Topology as Topology,
    captured_topology as captured_topology,
)
