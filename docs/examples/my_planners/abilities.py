"""The smallest example of each ability; a problem is `{"gpus": 8}`, and a decision is a sum."""

import json
from contextlib import contextmanager
from pathlib import Path

import my_library

from harness.contract import (
    Candidate,
    CandidateSet,
    Column,
    Commits,
    Design,
    Explanation,
    FittedFigure,
    FittedMachine,
    Imported,
    Inventory,
    LibraryTopology,
    Planning,
    Prepared,
    RankTable,
    RankWork,
    Releases,
    Section,
    Series,
    TimedWork,
    TopologyRow,
    TopologyTrap,
    UsageError,
    read_file,
)


# planning: `shardbench plan` writes the document, and every cell stores the ranks.
def ranks(problem, total):
    """Return the load of each rank; a capacity of None is unlimited."""
    share = total / problem["gpus"]
    return RankTable(("share",), ((share,),) * problem["gpus"], capacities=(None,), bar="share")


PLANNING = Planning("loop", document=lambda problem, total: {"sum": total}, ranks=ranks)


# explain: `shardbench explain` shows sentences and tables, and writes the document as JSON.
def explain(problem, total, question):
    """Explain a decision on one rank."""
    rank = question.rank or 0
    if rank >= problem["gpus"]:
        raise UsageError(f"There is no rank {rank}.")
    added = Section("What is added", ("rank", "number"), ((str(rank), rank),))
    return Explanation((f"The numbers make {total}.",), (added,), {"sum": total})


# explain_table: `shardbench explain --table NAME` explains one part of a decision.
def explain_table(problem, total, question):
    """Explain one number."""
    if question.table not in map(str, range(problem["gpus"])):
        raise UsageError(f"There is no number {question.table}.")
    return Explanation((f"{question.table} is a part of {total}.",), (), {"sum": total})


# figures: computed once for all variants, each of which gets them as `known`. `quality` then
# returns `bound(problem)` for `Quality("bound", better="higher", bounds="sum")`.
def bound(problem):
    """Return the largest number, which no sum is below."""
    if "bound" not in problem:
        problem["bound"] = problem["gpus"] - 1
    return problem["bound"]


def figures(problem, known):
    """Return the figures of a problem that are valid for every decision."""
    problem.update(known)
    return {"bound": bound(problem)}


# inventory: `shardbench workload show` draws the parts; a column with a scale gets a histogram.
COLUMNS = (Column("name"), Column("value", kind="count", scale="linear"))


def of_numbers(values):
    """Return the inventory of some numbers."""
    rows = tuple((f"number {value}", value) for value in values)
    return Inventory("Numbers", "number", COLUMNS, rows, f"{len(rows)} numbers", sort="value")


def inventory(workload, topology):  # noqa: ARG001 - all workloads have the same numbers
    """Return the parts of a workload."""
    if topology is None:
        raise UsageError("The numbers depend on the GPUs: name --topology and --gpus.")
    return of_numbers(range(topology.gpus))


# importing: `shardbench workload import` turns another program's file into a workload.
def read(request):
    """Read numbers from a JSON file."""
    values = json.loads(read_file(request.source))
    return Imported("\n".join(map(str, values)).encode(), of_numbers(values))


# capture: `shardbench.capture` runs this around a call in a user's job, and writes the content.
# `build` reads the file by `read_captured(name, "sums")`; `names.written` hashes names on request.
@contextmanager
def capture(names):  # noqa: ARG001 - numbers have no names
    """Record the numbers that a job plans with."""
    seen, plan = [], my_library.plan

    def recorded(values):
        seen.append(list(values))
        return plan(values)

    my_library.plan = recorded
    try:
        yield lambda: {"numbers": seen[-1]} if seen else None
    finally:
        my_library.plan = plan


# series: `shardbench releases` and `shardbench history` run the driver for each version.
SERIES = Series(
    library="my-library",
    driver=Path(__file__).with_name("driver.py"),
    problems=("numbers/dgx_h100:8",),
    parts={"plan": "the planner"},
    counters={"numbers": "numbers that were added"},
    releases=Releases(phases=("plan",)),
    commits=Commits(package="my_library", paths=("my_library",)),
)


# topology: `shardbench topology check` reads the library's own arguments and finds traps.
def read_arguments(content, file):
    """Return the library's arguments as a topology's row."""
    arguments = json.loads(content)
    known = "local_size" in arguments
    texts = {"gpus_per_host": str(arguments["local_size"])} if known else {}
    return TopologyRow(file, texts, TOPOLOGY, arguments["world_size"])


def traps(row, values, gpus):  # noqa: ARG001 - the contract's arguments
    """Yield values that mislead the library."""
    if "gpus_per_host" not in row.texts:
        yield TopologyTrap("gpus_per_host", "is left out, so all GPUs count as one host", "8")


TOPOLOGY = LibraryTopology("my_library", read_arguments, traps, {"gpus_per_host": "local_size"})


# measuring: `shardbench validate` times decisions next to a reference, `calibrate` fits a machine.
def work(numbers):
    """Return the timed work of adding numbers."""
    return TimedWork(str(numbers), lambda: {"both": Prepared(run=lambda: sum(range(numbers)))})


class SumBench:
    """Measures sums of different lengths on a CPU."""

    device, is_asynchronous, reference = "a CPU", False, work(20_000)

    def __init__(self, options):
        if options.device != "cpu":
            raise UsageError("Sums are measured on a CPU.")

    def candidates(self, problem, number):  # noqa: ARG002 - sums depend on no problem
        """Return different decisions to measure."""
        sizes = [10_000 * (1 + index) for index in range(number)]
        return CandidateSet([Candidate(f"sum-{n}", str(n), [self.on_rank(n)]) for n in sizes])

    def on_rank(self, numbers):
        """Return the work of a rank, with its estimate in milliseconds."""
        return RankWork(work(numbers), {"linear": numbers / 1e5}, modelled_ms=0.0, facts={})

    def design(self, share):  # noqa: ARG002 - there is one kernel to measure
        """Return what to measure to fit a machine."""

        def fit(times, reference_ms):  # noqa: ARG001 - the contract's arguments
            value = times["30000"]["both"] / 30_000
            return FittedMachine([FittedFigure("of a number", value, value, value, "ms")], [])

        return Design([work(30_000)], fit)


def machines():
    """Return the device of each calibrated machine, by name; no estimate of sums uses one yet."""
    return {}
