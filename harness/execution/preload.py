"""Imports what child processes need, once, in the process that they are forked from.

What cannot be imported is left to the variants that need it: in the server any error but
ImportError would end all of them.
"""

import os
import warnings
from contextlib import suppress
from importlib import import_module

from harness.execution.bootstrap import adopt_orphans

PRELOAD = "SHARDBENCH_PRELOAD"


def _become_server(modules: str) -> None:
    os.dup2(2, 1)  # what is imported may print
    adopt_orphans()
    # Orphans that it adopted end, and it knows nothing of them.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    for module in modules.split():
        with suppress(Exception, SystemExit):
            import_module(module)


# Only the server is started with it, and what is started from there must not take itself for one.
if (_modules := os.environ.pop(PRELOAD, None)) is not None:
    _become_server(_modules)
