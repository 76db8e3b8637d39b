"""Leave out FSDP2's marks for profilers while no profiler runs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.profiler import record_function

_NO_MARK = nullcontext()


def _mark(name: str, args: str | None = None) -> AbstractContextManager[Any]:
    return record_function(name, args) if torch.autograd._profiler_enabled() else _NO_MARK


@contextmanager
def unmarked() -> Iterator[None]:
    """Inside the context, `fully_shard` marks its work only while a profiler runs.

    Torch makes a dozen marks for each sharded module and step, also if nobody records them.
    """
    with mock.patch.object(_fsdp_param_group, "record_function", _mark):
        yield
