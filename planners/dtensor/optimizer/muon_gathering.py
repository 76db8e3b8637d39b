"""Muon with one gather of each matrix, as training scripts do by hand: a variant's step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz
from torch.optim.optimizer import _to_scalar


@contextmanager
def gather_each(optimizer: Any) -> Iterator[None]:
    """Inside the context, gather each update, and let every rank orthogonalise all of them."""

    def init_group(group: dict[str, Any], *columns: list[Any]) -> Any:
        returned = type(optimizer)._init_group(optimizer, group, *columns)
        lr, momentum = _to_scalar(group["lr"]), group["momentum"]
        for parameter, grad, buffer in zip(*columns, strict=True):
            buffer.lerp_(grad, 1 - momentum)
            update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            whole = update.bfloat16().full_tensor()
            whole = _zeropower_via_newtonschulz(
                whole, group["ns_coefficients"], group["ns_steps"], group["eps"]
            )
            made = torch.distributed.tensor.DTensor.from_local(
                whole, parameter.device_mesh, run_check=False
            ).redistribute(placements=parameter.placements)
            parameter.mul_(1 - lr * group["weight_decay"])
            parameter.add_(made, alpha=-_adjust_lr(lr, group["adjust_lr_fn"], parameter.shape))
        for column in columns:
            column.clear()
        return returned

    optimizer._init_group = init_group
    try:
        yield
    finally:
        del optimizer._init_group
