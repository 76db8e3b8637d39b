"""Compiles kernels in other processes ahead of a search; run as a script, it compiles all kernels.

Several processes, such as the ranks of a job, may need the same kernels at once. One process on the
machine compiles a module of kernels and holds a file lock as long as it lives; the others wait for
the cached machine code. The compiling process imports neither torch nor torchrec.
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

SAME_PLAN = ("same_plan.placing", "same_plan.bins")
"""The modules of kernels that a search for torchrec's plan uses, within the package."""

# In the order in which a search needs them, except `rounds`, which takes longest to compile.
BEST_PLAN = ("same_plan.placing", "best_plan.rounds", "same_plan.bins", "best_plan.pricing")
"""The modules that a search for the best plan uses."""

_POLL_SECONDS = 0.02
_SILENT_SECONDS = 2.0  # a longer wait is announced
_MOST_SECONDS = 300.0  # after a longer wait, as for a process that is stopped, kernels compile here
_NICENESS = 10  # of a compiling process: a job's search may run at the same time

logger = logging.getLogger("shardbench")

_running: dict[str, "subprocess.Popen[str]"] = {}
_loaded: set[str] = set()


class CannotCompile(Exception):
    """A compiling process failed or could not be started; the text is a clause with the reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"its kernels could not be compiled: {str(reason).rstrip('.')}")


def are_loaded(modules: Iterable[str]) -> bool:
    """Whether this process has loaded the kernels of all these modules."""
    return _loaded.issuperset(modules)


def load(modules: Iterable[str]) -> None:
    """Load the kernels of these modules into this process; compile kernels that are not cached."""
    from planners.embedding.search import compiling

    for module in modules:
        if module not in _loaded:
            for kernel in _kernels(module):
                compiling.load(kernel)
            _loaded.add(module)


def are_kept(modules: Iterable[str]) -> bool:
    """Whether all kernels of these modules are loaded or cached on disk."""
    from planners.embedding.search import compiling

    return all(
        module in _loaded or all(map(compiling.is_kept, _kernels(module))) for module in modules
    )


def _kernels(module: str) -> Sequence[Any]:
    from planners.embedding.search import compiling

    importlib.import_module(f"{PACKAGE}.{module}")
    return compiling.KERNELS.get(f"{PACKAGE}.{module}", ())


def advance(modules: Iterable[str]) -> bool:
    """Start processes that compile missing kernels; return, without waiting, True if none is.

    At most one process per core that was started here runs at a time, at low priority. Raise
    CannotCompile if an earlier process failed or none can be started.
    """
    for module, process in list(_running.items()):
        if process.poll() is not None:
            del _running[module]
            _, errors = process.communicate()
            if not are_kept((module,)):
                reason = errors.strip().rpartition("\n")[2]
                raise CannotCompile(reason or f"exit code {process.returncode}")
    missing = [module for module in modules if not are_kept((module,))]
    for module in missing:
        if module not in _running and len(_running) < len(os.sched_getaffinity(0)):
            _start(module, missing)
    return not missing


def _start(module: str, missing: Sequence[str]) -> None:
    """Start a process that compiles `module`, then `missing`, unless `module` is locked."""
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
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)


def _locked(module: str) -> IO[str] | None:
    """Lock a module and return the lock file; None if it is locked already or cached.

    Raise CannotCompile if the lock file cannot be opened.
    """
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
    """Start to compile the kernels of modules on all cores, for a later call of `ready`."""
    with suppress(CannotCompile):
        advance(modules)


def ready(modules: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
    """Compile the kernels of modules on all cores, wait for them, and load them into this process.

    After two seconds of waiting, log a warning on the logger `shardbench`. If no process can
    compile the kernels, or none has in five minutes, compile them here.
    """
    modules, began = tuple(modules), clock()
    with suppress(CannotCompile):
        while not are_kept(modules) and clock() - began < _MOST_SECONDS:
            advance(modules)
            if clock() - began > _SILENT_SECONDS:
                _announce()
            time.sleep(_POLL_SECONDS)
    load(modules)


@cache  # once for a process
def _announce() -> None:
    logger.warning(
        "Compiling the planner's search, once for this installation: some 5 s on two cores. "
        "`%s` does it in advance.",
        COMMAND,
    )


def _compile_here(module: str, others: Iterable[str]) -> None:
    """Compile `module`, which the parent process has locked, then all unlocked `others`.

    Compiling several modules in one process starts numba only once.
    """
    gc.disable()  # garbage collection takes a seventh of the time
    sys.modules["scipy.linalg"] = cast(Any, None)  # keeps numba from importing it for products
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
        ready(BEST_PLAN)
