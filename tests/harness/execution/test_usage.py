"""The memory of a process, and the CPU time and the number of the processes that it has started."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import pairwise

import psutil
import pytest
import toy
import toy_registries

from harness.execution.child import run
from harness.execution.forks import Fork, Send
from harness.execution.usage import descendants_cpu, has_more_than
from harness.execution.worker import Note, Report, Stage
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.measuring.timing.turns import SystemClock
from harness.model import machine
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology

BUSY = 0.1  # CPU seconds
GIB, MIB = 2**30, 2**20
WORKLOAD, TOPOLOGY = WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2)


def busy(seconds: float = BUSY) -> None:
    """Use CPU time of this process."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def fork(work: Callable[[], object]) -> int:
    if child := os.fork():
        return child
    work()
    os._exit(0)


def in_a_fork() -> None:
    os.waitpid(fork(busy), 0)


def in_a_fork_of_a_fork() -> None:
    os.waitpid(fork(in_a_fork), 0)


def in_an_orphan() -> None:
    os.waitpid(fork(lambda: fork(busy)), 0)
    os.wait()


def in_a_fork_without_a_wait() -> None:
    os.waitid(os.P_PID, fork(busy), os.WEXITED | os.WNOWAIT)


def in_a_program() -> None:
    code = f"import time\nwhile time.process_time() < {BUSY}: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def counted(works: list[Callable[[], None]], _: Report) -> list[float]:
    times = [descendants_cpu()]
    for work in works:
        work()
        times.append(descendants_cpu())
    return [after - before for before, after in pairwise(times)]


def test_the_time_of_processes_counts_wherever_they_end():
    """Forks, their forks, orphans, programs and children without a wait are counted."""
    works = [in_a_fork, in_a_fork_of_a_fork, in_an_orphan, in_a_program, in_a_fork_without_a_wait]
    seconds = run(counted, works, first=Stage("counting", 60.0))
    assert all(BUSY <= each < 20 * BUSY for each in seconds), seconds


def living(_: Report) -> list[float]:
    """Return what two calls in the living worker of a pool add, and the end of the pool."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(busy, 0.0).result()
        times = [descendants_cpu()]
        for _ in range(2):
            pool.submit(busy).result()
            times.append(descendants_cpu())
    times.append(descendants_cpu())
    return [after - before for before, after in pairwise(times)]


def test_the_time_of_a_living_process_counts_once():
    """A worker's time is counted while it lives, and stays the same when it has ended."""
    first, second, ended = run(living, first=Stage("counting", 60.0))
    assert BUSY <= min(first, second) <= max(first, second) < 2 * BUSY
    assert 0 <= ended < BUSY


def a_grandchild_that_ends(_: Report) -> list[float]:
    """Return a clock's readings with a child's child alive, after its end, and after more work."""
    ours, theirs = socket.socketpair()

    def grandchild() -> None:
        busy(0.004)  # the kernel counts an ended one in hundredths of a second: not at all
        theirs.send(b"!")
        theirs.recv(1)

    def child() -> None:
        os.waitpid(fork(grandchild), 0)
        theirs.send(b"!")
        theirs.recv(1)
        busy()
        theirs.send(b"!")
        theirs.recv(1)

    fork(child)
    clock, readings = SystemClock(), []
    for _ in range(3):
        ours.recv(1)
        readings.append(clock.cpu())
        ours.send(b"!")
    return readings


def test_a_clock_never_goes_back():
    """What the kernel forgets of a descendant's time at its end is in no later turn."""
    alive, ended, worked = run(a_grandchild_that_ends, first=Stage("counting", 60.0))
    assert alive <= ended <= worked - BUSY


def test_cells_have_the_peak_of_the_checked_call():
    """Set-up took twice as much; of a call over budget, it is a lower bound."""
    names = ("hungry", "hungry-endless", "measured", "missing")
    request = Request(toy.TOY, WORKLOAD, TOPOLOGY, names)
    rule = SamplingRule(seconds=0.05, least_blocks=2, warmup_seconds=0.05)
    comparison = Comparison(request, Settings(0.5, rule), toy_registries.toy_registry)
    cells = {cell.variant: cell for cell in comparison.run()}
    hungry, endless = cells["hungry"], cells["hungry-endless"]
    peak = (hungry.peak_memory_bytes or 0) - (hungry.memory_before_bytes or 0)
    assert 0.9 * toy.HUNGER < peak < 1.5 * toy.HUNGER
    assert endless.status == "over budget"
    assert (endless.peak_memory_bytes or 0) > toy.HUNGER
    assert (endless.memory_before_bytes, endless.progress) == (None, None)
    for name in ("measured", "missing"):
        assert cells[name].peak_memory_bytes is None


def waits(send: Send) -> None:
    send("there")
    time.sleep(600)


def more_than_limits(report: Report) -> list[bool]:
    before = psutil.Process().memory_info().rss
    memory = bytearray(b"1") * (200 * MIB)
    with ExitStack() as stack:
        for _ in range(3):
            assert stack.enter_context(Fork(waits, report, True)).receive() == Note("there")
        has_more = [has_more_than(os.getpid(), before + mib * MIB) for mib in (100, 400)]
    del memory
    return has_more


def test_memory_that_forks_share_counts_once():
    """Three forks of a process with 200 MiB have less than 400 MiB together."""
    assert run(more_than_limits, first=Stage("forking", 60.0)) == [True, False]


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        ("0::/", "memory.max"),
        ("0::/jobs/job 7/step", "jobs/memory.max"),
        ("3:cpu,memory:/jobs/7", "memory/jobs/memory.limit_in_bytes"),
        ("3:memory:/of-the-host", "memory/memory.limit_in_bytes"),
    ],
)
def test_a_container_has_a_limit_of_its_own(monkeypatch, tmp_path, own, limit):
    """The limit of this process's cgroup, or of any of its ancestors, is the memory."""
    (tmp_path / "own").write_text(f"1:name=systemd:/else\n{own}\n")
    (tmp_path / limit).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / limit).write_text(f"{2 * GIB}\n")
    monkeypatch.setattr(machine, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    assert machine.default_memory_gib() == 1.8
