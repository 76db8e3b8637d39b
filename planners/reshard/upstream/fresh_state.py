"""Paddle as it is when it has just been imported, as far as a program depends on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import paddle
from paddle import static
from paddle.base import framework, unique_name
from paddle.distributed.auto_parallel.static.dist_context import set_default_distributed_context
from paddle.distributed.auto_parallel.static.process_group import clear_all_process_groups


@contextmanager
def fresh_state() -> Iterator[None]:
    """Let the same names and numbers be given until the block is left, whatever was built before.

    They are the names of variables and of scopes, the numbers of process groups, and what is known
    of how tensors are sharded. From release 3 on, names are also counted by the default program.
    """
    paddle.enable_static()
    set_default_distributed_context(None)
    clear_all_process_groups()
    with (
        unique_name.guard(),
        patch.object(framework, "_name_scope", framework.NameScope()),
        static.program_guard(static.Program(), static.Program()),
    ):
        yield
