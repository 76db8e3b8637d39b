"""A cache of plans for `Planner` and for torchrec's dry run: a folder with one file per plan."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import torchrec
from torch import nn
from torchrec.distributed.planner.types import BasicCommsBandwidths
from torchrec.distributed.types import ModuleSharder

from harness.contract import Names, ShardbenchError
from planners.embedding.capture.file import CapturedProblem, plain
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cached_search import CachedSearch
from planners.embedding.plan_cache.folder import PlanFolder
from planners.embedding.tables.torchrec_objects import sharded_modules

FORMAT = 2
"""Raise it if a change of this project finds other plans for the same inputs."""

# A captured problem without the reservation (the memory that it leaves is in the key instead) and
# without what planning finds.
_INPUTS = ("topology", "batch_size", "sharders", "modules", "constraints", "planner")
_OWN_PACKAGES = ("torchrec", "planners")

_COMPUTED = "_coefficients"  # of estimators, from their settings


class PlanCache:
    """Keeps the plans of planners in a folder, as files of `shardbench plan`.

    Pass it as `Planner(cache=...)`. A plan is stored under a hash of all inputs that decide it:
    tables, constraints, topology, memory after the reservation, batch size, sharders, components
    and their settings, mode, seed, limits and torchrec's release. Planning the same problem again
    loads the plan without a search, after checking it on this problem.

    In mode `best-plan` a similar plan helps, too: one of the same tables by name if a table or the
    machine changed, or else one with nine tenths of the tables in common. If it still fits, and its
    rating is at most the share `near` above the proven bound, it is used again. Otherwise the
    search starts from it, and may move a share `most_moved` of all weights and optimizer state. The
    plan found so is used if its rating is at most the share `near` above that of the best plan
    found without a limit, which is used otherwise.

    Damaged files, and a folder that cannot be written, cause a warning on the logger `shardbench`;
    planning goes on. The files together take `most_gib` GiB at most, and those used longest ago are
    removed first. Any number of processes may share the folder.

    Raises ValueError for a share or a size out of range.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        near: float = 0.01,
        most_moved: float = 0.1,
        most_gib: float = 1.0,
    ) -> None:
        for name, share in (("near", near), ("most_moved", most_moved)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share!r}.")
        if not most_gib > 0:
            raise ValueError(f"most_gib must be a size above 0 GiB, not {most_gib!r}.")
        self._near, self._most_moved = near, most_moved
        self._folder = PlanFolder(Path(folder), int(min(most_gib, 2**20) * 2**30))

    def search(
        self, planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> CachedSearch | None:
        """Return the search for a planner's plan; None, after a warning, if it cannot be kept."""
        try:
            inputs = _problem_inputs(planner, module, sharders)
        except Exception as error:  # a user's own class may raise anything
            self._folder.report(f"The plan is neither taken from the cache nor kept there: {error}")
            return None
        return CachedSearch(planner, inputs, self._folder, self._near, self._most_moved)


def _problem_inputs(
    planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
) -> bytes:
    """Return all inputs of a problem, except the memory that the storage reservation leaves.

    They depend on torchrec's release and on values, not on the process or the machine. Raises
    ShardbenchError if an input is unknown, such as a user's own estimator.
    """
    modules = sharded_modules(module, sharders)
    inputs = CapturedProblem.of(planner, modules, Names())
    names = Counter(table.name for captured in inputs.modules for table in captured.tables)
    name, times = names.most_common(1)[0]
    if times > 1:
        raise ShardbenchError(f"several modules have a table {name}, and a plan's file only names.")
    if inputs.planner.obstacle:
        raise ShardbenchError(f"{inputs.planner.obstacle}.")
    if planner._enumerator is not planner._own_enumerator:
        raise ShardbenchError("the enumerator is the caller's own.")
    bandwidths = type(planner._topology.comms_bandwidths)
    if bandwidths is not BasicCommsBandwidths:
        raise ShardbenchError(f"{bandwidths.__name__} is not torchrec's.")
    # What the captured inputs lack: tables with weights that are stashed, and the estimators.
    configs = (config for sharded in modules for config, _ in sharded.tables)
    parts = [
        FORMAT,
        getattr(torchrec, "__version__", "a checkout"),
        {name: getattr(inputs, name) for name in _INPUTS},
        [config.name for config in configs if getattr(config, "stash_weights", False)],
        [_described(estimator, planner) for estimator in planner._enumerator._estimators],
    ]
    try:
        return msgspec.json.encode(parts, order="deterministic", enc_hook=plain)
    except TypeError as error:
        raise ShardbenchError(f"an input is unknown: {error}.") from None


def _described(part: Any, planner: Planner) -> list[Any]:
    """Describe an estimator or its configuration by its class and its settings.

    Raises ShardbenchError for a user's own class, and for another topology than the planner's.
    """
    kind, settings = type(part), {}
    if kind.__module__.partition(".")[0] not in _OWN_PACKAGES:
        raise ShardbenchError(f"{kind.__name__} is neither torchrec's nor shardbench's.")
    for name, value in vars(part).items():
        if name in ("_topology", "_constraints"):
            if value is not getattr(planner, name):
                raise ShardbenchError(f"{kind.__name__} has a {name[1:]} of its own.")
        elif name != _COMPUTED:
            is_part = name in ("_config", "_estimator")
            settings[name] = _described(value, planner) if is_part else value
    return [kind.__module__, kind.__qualname__, settings]
