"""Torch's dispatch without its cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor._dispatch import OpDispatcher

from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.torch_path import DISPATCHER


class _ForgetfulDispatcher(OpDispatcher):
    """Clears the C++ cache when C++ asks for handlers, which it does before it opens the cache."""

    @property
    def _custom_op_handlers(self) -> dict[Any, Any]:
        torch._C._clear_DTensor_sharding_propagator_cache()
        handlers: dict[Any, Any] = self.__dict__["_custom_op_handlers"]
        return handlers


class Uncached(Dispatch):
    """Every op is a miss."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Give torch's dispatcher the forgetful class for as long."""
        DISPATCHER.__class__ = _ForgetfulDispatcher
        try:
            yield
        finally:
            DISPATCHER.__class__ = OpDispatcher
