"""A harmful variant loses its own cell, and affects no other cell."""

import os
from collections.abc import Callable
from pathlib import Path

import harmful
import psutil
import pytest
from harmful import HARMS
from processes import server_children

from harness.contract.registry import Registry
from harness.execution.child import run
from harness.execution.worker import Report, Stage
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import start_server_for
from harness.measuring.request import Request
from harness.measuring.timing.verdict import judge
from harness.model.cell import Cell
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology
from shardbench import display
from shardbench.commands import compare as compared

LONG, SHORT = 60.0, 0.5
# While calls are timed: a harm of each kind of end.
LATER = ("leaves", "interrupts", "sends-garbage", "prints-then-fails", "ends-the-server")

GIB = 2**30


def compare(
    *variants: str,
    folder: Path | None = None,
    budget: float = LONG,
    setup_budget: float = LONG,
    memory_gib: float = 8.0,
    registry: Callable[[], Registry] = harmful.hostile_registry,
) -> dict[str, Cell]:
    start_server_for([harmful.HOSTILE])
    request = Request(
        registry().find("hostile"),
        WorkloadSpec("toy", {"folder": str(folder)} if folder else {}),
        find_topology("dgx_a100_80gb", 2),
        ("reference", "same", *variants),
    )
    rule = SamplingRule(seconds=0.05, least_blocks=2, most_blocks=2, warmup_seconds=0.05)
    settings = Settings(budget, rule, setup_budget, memory_gib)
    cells = {cell.variant: cell for cell in Comparison(request, settings, registry).run()}
    assert list(cells) == [name for name in harmful.HOSTILE.variants if name in cells]
    return cells


def assert_others_are_well(cells: dict[str, Cell]) -> None:
    for name in ("reference", "same"):
        assert (cells[name].status, cells[name].reason) == ("ok", None)
        assert cells[name].cpu_s is not None
        assert cells[name].output is None
    assert cells["same"].ratio is not None
    assert cells["same"].verdict == judge(cells["same"].ratio)


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    """Compare all variants that do harm, in their check or from their third call on."""
    folder = tmp_path_factory.mktemp("harmed")
    cells = compare(*HARMS, *(f"{name}-later" for name in LATER), folder=folder)
    assert {path.stat().st_size for path in folder.glob("file-*")} == {0}
    assert_others_are_well(cells)
    return cells


@pytest.mark.parametrize("variant", HARMS)
def test_harm_in_the_check_costs_its_own_cell(harmed, variant):
    """The variant has no decision, no time and no ratio."""
    cell = harmed[variant]
    assert cell.status == "failed"
    assert (cell.reason or "").startswith(HARMS[variant])
    assert (cell.decision, cell.cpu_s, cell.ratio) == (None, None, None)


@pytest.mark.parametrize("variant", LATER)
def test_harm_while_timing_costs_its_own_cell(harmed, variant):
    """The variant has a decision, but no time."""
    cell = harmed[f"{variant}-later"]
    reason = HARMS[variant]
    if variant == "ends-the-server" and "255" not in (cell.reason or ""):
        # Its parent is the child, if calls are timed in a fork: a busy machine prevents that.
        reason = "The child process was killed by signal 9 (SIGKILL) without a result."
    assert (cell.status, cell.decision) == ("failed", "same")
    assert (cell.reason or "").startswith(reason.removesuffix(" of 8 GiB"))
    assert (cell.cpu_s, cell.ratio, cell.verdict) == (None, None, None)


def test_a_failed_cell_keeps_the_last_output(harmed, capsys):
    """A crash shows its stack, and control characters are escapes."""
    crash = harmed["segfaults"].output or ""
    assert "Segmentation fault" in crash
    assert "in segfaults" in crash
    assert "Extension modules" not in crash
    words = r"\x1b[31mthe last words\x00 of <it> [bold]é"
    assert harmed["prints-then-fails"].output == words
    assert "the last words" in (harmed["prints-then-fails-later"].output or "")
    assert harmed["interrupts"].output is None
    display.show(compared.shown(list(harmed.values()), details=False))
    shown = capsys.readouterr().out
    assert "floods-then-fails printed, at last:\n    flood\n" in shown
    assert "same printed" not in shown


def test_harm_beside_the_calls_costs_nothing(tmp_path):
    """No process, thread or changed folder of one variant disturbs another."""
    names = (
        *("escapes", "forks-and-goes-on", "never-ending-thread", "changes-folder", "stays"),
        *("closes-badly", "closes-and-crashes"),
    )
    cells = compare(*names, folder=tmp_path)
    assert_others_are_well(cells)
    for name in names:
        assert (cells[name].status, cells[name].reason) == ("ok", None)
        assert cells[name].ratio is not None
    # Variants close in the order of their times; those after a crash have no turn.
    assert (tmp_path / "closes-and-crashes-closed").exists()
    assert not psutil.pid_exists(int((tmp_path / "grandchild").read_text()))
    assert server_children() == []


def test_a_stage_of_a_variant_that_never_ends_is_stopped():
    """Printing without end does not keep a call from its end; leaving a context may fail, too."""
    names = ("endless-set-up", "endless-close", "fails-on-leaving", "prints-for-ever")
    cells = compare(*names, budget=SHORT, setup_budget=SHORT)
    assert_others_are_well(cells)
    assert cells["fails-on-leaving"].reason == "OSError: cannot be left"
    assert stopped(cells["endless-set-up"]) == "its set-up"
    assert stopped(cells["endless-close"]) == "what followed its call"
    assert cells["prints-for-ever"].status == "over budget"


def test_a_stage_of_a_problem_that_never_ends_is_stopped(tmp_path):
    """Building a problem is tried once."""
    cells = compare(folder=tmp_path, setup_budget=SHORT, registry=harmful.endless_build_registry)
    assert len(list(tmp_path.glob("built-by-*"))) == 1
    assert {stopped(cell) for cell in cells.values()} == {"building the problem"}
    cells = compare(setup_budget=SHORT, registry=harmful.endless_quality_registry)
    assert stopped(cells["same"]) == "what followed its call"


def stopped(cell: Cell) -> str:
    what, _, seconds = (cell.reason or "").rpartition(" was stopped after ")
    assert cell.status == "failed"
    assert seconds.removesuffix(" s") in ("0.5", "1")
    return what


def test_a_process_that_exceeds_its_memory_is_stopped():
    """It may hoard slowly, in another process, or ask for all at once."""
    usual = compare()["reference"].peak_memory_bytes or 0
    limit = round(usual / GIB + 0.2, 2)  # slightly above it
    names = ("hoards", "hoards-elsewhere", "asks-for-too-much")
    cells = compare(*names, memory_gib=limit)
    assert_others_are_well(cells)
    for name in names:
        assert cells[name].status == "failed"
        assert cells[name].reason == f"passed its memory limit of {limit:g} GiB"


def die_without_memory(_: Report) -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def test_a_crash_for_lack_of_memory_names_the_limit():
    """The reason is in the output."""
    failed = run(die_without_memory, first=Stage("dying", LONG), memory_gib=2.0)
    assert failed.reason == "passed its memory limit of 2 GiB"
