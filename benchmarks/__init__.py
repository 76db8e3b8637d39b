"""The asv suite: a thin adapter over the registry of planner families in `harness`."""

import os
import sys

if os.environ.get("ASV_ENV_TYPE") == "worktree":
    # A module that a commit lacks must not be imported from the editable install instead.
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not getattr(finder, "__module__", "").startswith("__editable___shardbench_")
    ]

OUTLINE_FILE = "SHARDBENCH_ASV_OUTLINE"
"""The environment variable with the file of the suite's outlines; see `families.outlines`."""
