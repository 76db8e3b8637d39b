"""Profile variants on one problem, in turns in one child process."""

from collections.abc import Callable

from harness.contract.registry import Registry, load_registry
from harness.execution.worker import Failed
from harness.measuring.jobs import run_profile, start_server_for
from harness.measuring.monitor import Event, Listener, OverBudget, run_job
from harness.measuring.profile.flame_graph import Profiled
from harness.measuring.request import BUILDING, Request
from harness.model.errors import ShardbenchError, UsageError
from harness.model.settings import Settings


def profile_variants(
    request: Request,
    settings: Settings,
    seconds: float,
    listen: Listener = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
) -> dict[str, Profiled]:
    """Profile a request's variants, each for at least `seconds`; return the profiles by name.

    Raise ShardbenchError if a variant is not installed, fails, or is over budget, and UsageError if
    the problem cannot be built.
    """
    for name in request.variants:
        request.family.find(name).check_installed()
    start_server_for([request.family])
    outcome = run_job(
        run_profile,
        request.job(settings, registry),
        seconds,
        event=Event("profiling", request.variants[0], 1, 1),
        listen=listen,
        memory_gib=settings.memory_gib,
        held=len(request.variants),
    )
    if isinstance(outcome, OverBudget):
        raise ShardbenchError(f"'{outcome.subject}' was stopped after {settings.budget:g} s.")
    if isinstance(outcome, Failed):
        how = "is not applicable" if outcome.cause == "not applicable" else "failed"
        name = outcome.subject
        text = f"'{name}' {how}: {outcome.reason}" if name else outcome.reason
        bad_input = (outcome.stage.what, outcome.cause) == (BUILDING, "usage")
        raise (UsageError if bad_input else ShardbenchError)(text)
    profiled: dict[str, Profiled] = outcome
    return profiled
