"""Puts the drop-in in place in processes that a test spawns; Python imports this when it starts."""

import os
import sys

if os.environ.get("PEERS_DROP_IN") and "--multiprocessing-fork" in sys.orig_argv:
    from multiprocessing.util import Finalize

    from peers_drop_in import note_reached, put_in_place

    reached = put_in_place(os.environ["PEERS_DROP_IN"])
    before = reached()

    def note() -> None:
        """Note the test that spawned this process, if it has used the drop-in here."""
        if reached() != before:
            note_reached(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0])

    # Before multiprocessing ends the process, which it does without atexit.
    Finalize(None, note, exitpriority=0)
