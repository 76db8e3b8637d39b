"""The asv suite: a thin adapter over the registry of `harness`."""

import os
import sys

if os.environ.get("ASV_ENV_TYPE") == "worktree":
    # What a commit does not have must be missing there, not come from the editable install.
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not getattr(finder, "__module__", "").startswith("__editable___shardbench_")
    ]
