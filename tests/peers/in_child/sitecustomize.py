"""Puts the drop-in in place in processes that a test spawns, which import this when they start."""

import os
import sys

if "PEERS_DROP_IN" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    import peers_spawned  # noqa: F401  it acts when imported
