"""Imports what child processes need, once, in the process that they are forked from.

What cannot be imported is left to the variants that need it: in the server any error but
ImportError would end all of them.
"""

import os
from contextlib import suppress
from importlib import import_module

PRELOAD = "SHARDBENCH_PRELOAD"

for _module in os.environ.get(PRELOAD, "").split():
    with suppress(Exception):
        import_module(_module)
