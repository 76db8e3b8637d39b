"""Torch's dispatch without its cache."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch.distributed.tensor._dispatch import OpDispatcher

from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.handlers import Below, Handlers, consulted


class Uncached(Dispatch):
    """Every op is a miss."""

    def installed(self) -> AbstractContextManager[None]:
        """Clear the C++ cache whenever C++ asks for handlers, which it does before it opens it."""

        def forgetting(below: Below) -> Callable[[OpDispatcher], Handlers]:
            def answer(_: OpDispatcher) -> Handlers:
                torch._C._clear_DTensor_sharding_propagator_cache()
                return below()

            return answer

        return consulted(forgetting)
