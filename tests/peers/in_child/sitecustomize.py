"""Installs the drop-in in processes that a test spawns; Python imports this module at start."""

import os
import sys

if "PEERS_DROP_IN" in os.environ and "--multiprocessing-fork" in sys.orig_argv:
    import peers_spawned  # noqa: F401  it acts when imported
