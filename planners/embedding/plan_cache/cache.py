"""A cache of plans for `Planner` and for torchrec's dry run: a folder with one file per plan."""

from pathlib import Path

from torch import nn
from torchrec.distributed.types import ModuleSharder

from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cached_search import CachedSearch
from planners.embedding.plan_cache.folder import PlanFolder
from planners.embedding.plan_cache.key import problem_inputs


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
            inputs = problem_inputs(planner, module, sharders)
        except Exception as error:  # a user's own class may raise anything
            self._folder.report(f"The plan is neither taken from the cache nor kept there: {error}")
            return None
        return CachedSearch(planner, inputs, self._folder, self._near, self._most_moved)
