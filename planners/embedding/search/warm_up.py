"""Compilation ahead of a search, in other processes; `python -m` this module compiles everything.

Many processes may need the same kernels at once, such as the ranks of a job. One process on the
machine compiles a module of kernels and holds a lock on a file as long as it lives; the others wait
for the machine code that it keeps. For most modules it imports neither torch nor torchrec.
"""

import fcntl
import gc
import importlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any, cast

PACKAGE = "planners.embedding"
COMMAND = f"python -m {PACKAGE}.search.warm_up"

SAME_PLAN = ("same_plan.placing.rows",)
"""The modules of kernels that every search for torchrec's plan uses, within the package."""

BINS = ("same_plan.dynamic_programming",)
BINS_2D = ("same_plan.dynamic_programming_2d",)
"""The modules that proposers over bins of memory use as well."""

# In the order in which a search needs them, except for the one that takes longest to compile.
BEST_PLAN = (
    *SAME_PLAN,
    "best_plan.local.rounds",
    *BINS,
    "best_plan.exact.branching",
    "best_plan.bounds.patterns",
)
"""The modules that a search for the best plan uses."""

_POLL_SECONDS = 0.02
_SILENT_SECONDS = 2.0  # a longer wait is announced
_NICENESS = 10  # of a process that nobody waits for

logger = logging.getLogger("shardbench")

_running: dict[str, "subprocess.Popen[str]"] = {}
_loaded: set[str] = set()
_soon: list[str] = []


class CannotCompile(Exception):
    """Another process could not compile kernels; the text is a clause with the reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"its kernels could not be compiled: {str(reason).rstrip('.')}")


def kernels_of(proposers: Iterable[object]) -> tuple[str, ...]:
    """Return the modules of kernels for torchrec's plan with these proposers."""
    names = {type(proposer).__name__ for proposer in proposers}
    bins = BINS if names & {"DynamicProgrammingProposer", "BinProposer"} else ()
    return (*SAME_PLAN, *bins, *(BINS_2D if "BinProposer2D" in names else ()))


def are_loaded(modules: Iterable[str]) -> bool:
    """Whether this process has loaded all of these kernels."""
    return _loaded.issuperset(modules)


def load(modules: Iterable[str]) -> None:
    """Load kernels into this process; compile those that are not kept."""
    from planners.embedding.search import compiling

    for module in modules:
        if module not in _loaded:
            for kernel in _kernels(module):
                compiling.load(kernel)
            _loaded.add(module)


def are_kept(modules: Iterable[str]) -> bool:
    """Whether none of these kernels has to be compiled."""
    from planners.embedding.search import compiling

    return all(
        module in _loaded or all(map(compiling.is_kept, _kernels(module))) for module in modules
    )


def _kernels(module: str) -> Sequence[Any]:
    from planners.embedding.search import compiling

    importlib.import_module(f"{PACKAGE}.{module}")
    return compiling.KERNELS.get(f"{PACKAGE}.{module}", ())


def advance(modules: Iterable[str], urgent: bool = False) -> bool:
    """Have processes compile the missing kernels, without waiting; return whether none is missing.

    At most one process started here runs at a time, at low priority; if `urgent`, one for each
    core, at normal priority. Raises CannotCompile.
    """
    for module, process in list(_running.items()):
        if process.poll() is not None:
            del _running[module]
            _check_success(module, process)
    missing = [module for module in modules if not are_kept((module,))]
    for module in missing:
        if module not in _running and len(_running) < (_cores() if urgent else 1):
            _start(module, missing, 0 if urgent else _NICENESS)
    return not missing


def _check_success(module: str, process: "subprocess.Popen[str]") -> None:
    """Raise CannotCompile if a process has ended without keeping its module."""
    _, errors = process.communicate()
    if not are_kept((module,)):
        raise CannotCompile(errors.strip().rpartition("\n")[2] or f"exit code {process.returncode}")


def _start(module: str, missing: Sequence[str], niceness: int) -> None:
    """Start a process that compiles a module and then others, unless one is doing so already."""
    lock = _locked(module)
    if lock is None:
        return
    try:
        with lock:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{PACKAGE}.search.warm_up", module, *missing],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[lock.fileno()],  # the process holds the lock from now on
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # it goes on if this process is stopped
            )
    except OSError as error:
        raise CannotCompile(error) from error
    _running[module] = process
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)


def _locked(module: str) -> IO[str] | None:
    """Return a file that holds the lock on a module, or None if another process compiles it."""
    from planners.embedding.search.compiling import kept_folder

    try:
        lock = (kept_folder() / f"{module}.lock").open("a")
    except OSError as error:
        raise CannotCompile(error) from error
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not are_kept((module,)):
            return lock
    lock.close()
    return None


def begin(modules: Iterable[str]) -> None:
    """Start compiling kernels that are needed soon, on all cores; calling one then waits for it."""
    from planners.embedding.search import compiling

    _soon[:] = modules
    compiling.wait_for = _wait_for_module
    with suppress(CannotCompile):
        advance(_soon, urgent=True)


def wait_for(modules: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
    """Have kernels compiled on all cores, together with those of `begin`, and wait for them.

    A wait of more than two seconds is announced on the logger `shardbench`. Returns without kernels
    that no process can compile.
    """
    began = clock()
    with suppress(CannotCompile):
        while not are_kept(modules):
            advance((*modules, *_soon), urgent=True)
            if clock() - began > _SILENT_SECONDS:
                _announce()
            time.sleep(_POLL_SECONDS)


def _wait_for_module(name: str) -> None:
    if name.startswith(f"{PACKAGE}."):
        wait_for([name.removeprefix(f"{PACKAGE}.")])


@cache  # once for a process
def _announce() -> None:
    logger.warning(
        "Compiling the planner's search, once for this installation: some 5 s on two cores. "
        "`%s` does it in advance.",
        COMMAND,
    )


def compile_ahead(modules: Iterable[str]) -> None:
    """Compile kernels on all cores, wait, and load them."""
    modules = tuple(modules)
    wait_for(modules)
    load(modules)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _speed_up_numba() -> None:
    """Change numba so that it compiles faster in a process that does nothing else."""
    from numba.core.targetconfig import TargetConfig

    @cache
    def defaults(kind: Any) -> dict[str, Any]:
        return {name: option.default for name, option in kind.options.items()}

    gc.disable()  # collecting takes a seventh of the time
    sys.modules["scipy.linalg"] = cast(Any, None)  # numba would import it, for products of matrices
    # Numba compares all flags whenever it looks up the type of a call, another seventh.
    TargetConfig.values = lambda flags: defaults(flags.__class__) | flags._values


def _compile_here(module: str, others: Iterable[str]) -> None:
    """Compile a module that the parent process has locked, and then those that nobody has locked.

    One process for several modules starts numba only once.
    """
    _speed_up_numba()
    load([module])
    for other in others:
        lock = _locked(other)
        if lock is not None:
            with lock:
                load([other])


if __name__ == "__main__":
    if sys.argv[1:]:
        _compile_here(sys.argv[1], sys.argv[2:])
    else:
        print("Compiling the planner's search on all cores.", flush=True)  # noqa: T201
        logger.setLevel(logging.ERROR)
        compile_ahead((*BEST_PLAN, *BINS_2D))
