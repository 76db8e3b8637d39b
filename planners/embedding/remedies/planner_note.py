"""Remedies for a planner that finds no plan, as a note for its error."""

import copy
from typing import TYPE_CHECKING

from torch import nn
from torchrec.distributed.types import ModuleSharder

from harness.contract import one_line
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import changed
from planners.embedding.remedies.remedies import remedies

if TYPE_CHECKING:
    from planners.embedding.drop_in.planner import Planner


def remedies_note(
    planner: "Planner", module: nn.Module, sharders: list[ModuleSharder[nn.Module]], seconds: float
) -> str:
    """Return sentences on what would be enough for a plan, found within `seconds`.

    The planner must have torchrec's estimates, since the changed problems are estimated again.
    """
    try:
        outcome = remedies(_problem_of(planner, module, sharders), seconds)
        changes = (remedy.sentence for remedy in outcome.remedies)
        sentences = [*outcome.causes, *changes, *outcome.findings]
    except Exception as error:  # the caller raises torchrec's error, which matters more
        sentences = [f"Remedies were not searched, {one_line(error)}"]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _problem_of(
    planner: "Planner", module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
) -> EmbeddingProblem:
    problem = EmbeddingProblem(
        tables=(),
        topology=planner._topology,
        module=module,
        constraints=planner._constraints or {},
        sharders=sharders,
        usable_hbm=(),
        usable_ddr=(),
        memory="",
        assigned="",
        batch_size=planner._batch_size,
        reservation=lambda: copy.copy(planner._storage_reservation),
    )
    return changed(problem)
