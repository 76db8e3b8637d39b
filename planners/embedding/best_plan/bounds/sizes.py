"""Limits of problem sizes for each prover, and for torchrec's proposals."""

import numpy as np

from planners.embedding.best_plan.candidates import Candidates

MOST_FOR_ALL_PROPOSALS = 1_000_000
"""Tables times ranks up to which all of torchrec's proposals are tried if no plan was found."""

# Largest problems for each prover. Branch and bound stores ranks as bits of an integer (at most 63)
# and cannot finish trees of more tables. With more shards, a pattern takes too long to find; with
# more tables, the linear bound is close to the best rating anyway.
_EXACT_RANKS, _EXACT_TABLES, _EXACT_SHARDS = 32, 40, 6000
_PATTERN_TABLES, _PATTERN_SHARDS = 40, 20_000
# Most columns of the integer programme, options times hosts. If the bound by patterns also runs, it
# proves more in less time except on the smallest problems.
_MOST_INTEGERS, _MOST_INTEGERS_WITH_PATTERNS = 2000, 800


def worth_exact(found: Candidates) -> bool:
    """Whether a problem is small enough for branch and bound to raise the bound."""
    return (
        found.devices.ranks <= _EXACT_RANKS
        and found.space.tables <= _EXACT_TABLES
        and _shards(found) <= _EXACT_SHARDS
    )


def worth_patterns(found: Candidates) -> bool:
    """Whether a problem is small enough for the bound by patterns."""
    return found.space.tables <= _PATTERN_TABLES and _shards(found) <= _PATTERN_SHARDS


def worth_integers(found: Candidates) -> bool:
    """Whether the integer programme by host is small enough to be solved in a few seconds."""
    most = _MOST_INTEGERS_WITH_PATTERNS if worth_patterns(found) else _MOST_INTEGERS
    return len(found.options) * (found.devices.hosts + 1) <= most


def _shards(found: Candidates) -> int:
    return int(np.diff(found.space.first_shard)[found.options].sum())
