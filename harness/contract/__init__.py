"""The contract between planners and the harness: everything that a planner's author imports."""

from harness.contract.abilities import (
    Abilities as Abilities,
    Commits as Commits,
    Driven as Driven,
    LibraryTopology as LibraryTopology,
    Releases as Releases,
    Series as Series,
    TopologyRow as TopologyRow,
    TopologyTrap as TopologyTrap,
)
from harness.contract.estimates import (
    BenchOptions as BenchOptions,
    Candidate as Candidate,
    CandidateSet as CandidateSet,
    Design as Design,
    FitError as FitError,
    FittedFigure as FittedFigure,
    FittedMachine as FittedMachine,
    Machine as Machine,
    MemorySet as MemorySet,
    RankMemory as RankMemory,
    RankWork as RankWork,
    TimedWork as TimedWork,
    Workbench as Workbench,
    read_machine as read_machine,
)
from harness.contract.family import (
    Counter as Counter,
    Family as Family,
    Implementation as Implementation,
    Study as Study,
    Workload as Workload,
)
from harness.contract.planning import (
    Explanation as Explanation,
    Moving as Moving,
    Planning as Planning,
    Question as Question,
    Remedies as Remedies,
    Remedy as Remedy,
    Section as Section,
)
from harness.contract.recorder import (
    Recorder as Recorder,
    count_calls as count_calls,
    is_observing as is_observing,
)
from harness.contract.supported_releases import SupportedReleases as SupportedReleases
from harness.contract.variants import (
    Measured as Measured,
    Prepared as Prepared,
    UpstreamProblem as UpstreamProblem,
    ask_upstream as ask_upstream,
)
from harness.contract.workloads import (
    CAPTURED_FILE as CAPTURED_FILE,
    Column as Column,
    Count as Count,
    Imported as Imported,
    ImportRequest as ImportRequest,
    Inventory as Inventory,
    Names as Names,
    Parameters as Parameters,
    Seed as Seed,
    is_captured_file as is_captured_file,
    labelled as labelled,
    read_captured as read_captured,
    read_parameters as read_parameters,
    require_topology as require_topology,
    workload_parameters as workload_parameters,
    write_captured as write_captured,
)
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
