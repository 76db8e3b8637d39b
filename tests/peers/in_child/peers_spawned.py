"""Puts the drop-in in place in this process, and records at its end whether it was reached."""

import os
from multiprocessing.util import Finalize

from peers_drop_in import put_in_place
from peers_record import current_test, write

reached = put_in_place(os.environ["PEERS_DROP_IN"])
before = reached()


def record() -> None:
    """Record the test that this process runs for, if the drop-in was reached."""
    if reached() != before:
        write(reached=current_test())


# Before multiprocessing ends the process, which it does without atexit.
Finalize(None, record, exitpriority=0)
