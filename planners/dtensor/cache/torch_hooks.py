"""Changes to torch that cached plans need: told when to forget, and DTensors made plainly."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor

from planners.dtensor.dispatch.torch_path import PROPAGATOR, modes_active
from planners.instruments import replaced

_REGISTRATIONS = (
    "register_op_strategy",
    "register_sharding_prop_rule",
    "register_single_dim_op_strategy",
)


def following_torch(
    forget: Callable[[], None], give_back: Callable[[OpOverload], None]
) -> AbstractContextManager[None]:
    """Call `forget` after torch's cache is cleared, `give_back` before an op gets a strategy."""
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
    return replaced(
        (
            (torch._C, "_clear_DTensor_sharding_propagator_cache", cleared),
            *((kind, name, registering(getattr(kind, name))) for name in _REGISTRATIONS),
        )
    )


def made_plainly() -> AbstractContextManager[None]:
    """Let torch make DTensors without wrappers of an empty method, unless traced or exported."""
    wrapped = DTensor.__init__

    def plain(self: DTensor, *args: Any, **kwargs: Any) -> None:
        if modes_active() or torch.compiler.is_exporting():
            wrapped(self, *args, **kwargs)

    plain._torchdynamo_disable = True  # type: ignore[attr-defined] # as torch's own is marked
    return replaced([(DTensor, "__init__", plain)])
