"""Changes to torch that cached plans need: told when to forget, and DTensors made plainly."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.dispatch.torch_path import PROPAGATOR, modes_active

_REGISTRATIONS = (
    "register_op_strategy",
    "register_sharding_prop_rule",
    "register_single_dim_op_strategy",
)


@contextmanager
def following_torch(
    forget: Callable[[], None], give_back: Callable[[OpOverload], None]
) -> Iterator[None]:
    """Follow what happens to torch's decisions, until left.

    `forget` is called after torch's cache was cleared, `give_back` with an op before torch gets a
    strategy for it.
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


@contextmanager
def made_plainly() -> Iterator[None]:
    """Let torch make DTensors without the two wrappers around their empty constructor.

    Those that are traced or exported have them as ever.
    """
    wrapped = DTensor.__init__

    def plain(self: DTensor, *args: Any, **kwargs: Any) -> None:
        if modes_active() or torch.compiler.is_exporting():
            wrapped(self, *args, **kwargs)

    plain._torchdynamo_disable = True  # type: ignore[attr-defined] # as torch's own is marked
    with mock.patch.object(DTensor, "__init__", plain):
        yield
