"""Installs the drop-in in this process, and records at the process's end whether it was used."""

import os
from multiprocessing.util import Finalize

from peers_drop_in import put_in_place
from peers_record import current_test, write

reached = put_in_place(os.environ["PEERS_DROP_IN"])
before = reached()


def record() -> None:
    """Record the test for which this process runs, if the drop-in was used."""
    if reached() != before:
        write(reached=current_test())


# Before multiprocessing ends the process, which it does without atexit.
Finalize(None, record, exitpriority=0)
