"""Follow torch where it forgets what it decided, or is told to decide otherwise."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._ops import OpOverload

from planners.dtensor.dispatch.torch_path import PROPAGATOR

_REGISTRATIONS = (
    "register_op_strategy",
    "register_sharding_prop_rule",
    "register_single_dim_op_strategy",
)


@contextmanager
def following_torch(
    forget: Callable[[], None], give_back: Callable[[OpOverload], None]
) -> Iterator[None]:
    """Tell of what happens to torch's decisions, until left.

    Args:
        forget: Is called after torch's cache was cleared.
        give_back: Is called with an op before torch gets a strategy for it.
    """
    clear = torch._C._clear_DTensor_sharding_propagator_cache

    def cleared() -> None:
        clear()
        forget()

    def registering(register: Callable[..., None]) -> Callable[..., None]:
        def registered(propagator: Any, op: OpOverload, *args: Any, **kwargs: Any) -> None:
            give_back(op)
            register(propagator, op, *args, **kwargs)

        return registered

    kind = type(PROPAGATOR)
    with ExitStack() as patches:
        for owner, name, replacement in (
            (torch._C, "_clear_DTensor_sharding_propagator_cache", cleared),
            *((kind, name, registering(getattr(kind, name))) for name in _REGISTRATIONS),
        ):
            patches.enter_context(mock.patch.object(owner, name, replacement))
        yield
