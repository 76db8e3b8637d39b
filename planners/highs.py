"""HiGHS, which solves linear and integer programmes: silent, one solve at a time, safe to fork."""

import os
import threading

import highspy


class Solver(highspy.Highs):
    """A solver that prints nothing; it must solve only while `solving` is locked."""

    def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
        """Enable callbacks, as highspy's `__init__` does; since 1.16 that would print a banner."""
        self.setOptionValue("output_flag", False)
        self.setOptionValue("threads", 1)  # solvers with other numbers fail in one process
        super().enableCallbacks()


solving = threading.Lock()


def is_solved(highs: Solver, seconds: float) -> bool:
    """Run a solver for some seconds, and return whether its solution is optimal."""
    with solving:
        # HiGHS's time limit applies to the sum of all its runs.
        highs.setOptionValue("time_limit", highs.getRunTime() + max(seconds, 0.0))
        highs.run()
    return bool(highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)


def _stop_workers() -> None:
    """End HiGHS's threads before a fork: a child would wait forever for threads it does not have.

    HiGHS forbids this during a solve, so it waits for one in another thread.
    """
    solving.acquire()
    highspy.Highs.resetGlobalScheduler(True)


os.register_at_fork(
    before=_stop_workers, after_in_parent=solving.release, after_in_child=solving.release
)
