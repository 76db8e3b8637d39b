"""Step torch's Muon on sharded matrices with two all-to-alls for each bucket of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz
from torch.optim.optimizer import _to_scalar

from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.local_rule import Split, raised_as_by_torch, versions
from planners.dtensor.optimizer.muon_buckets import (
    AllToAll,
    Bucket,
    Part,
    buckets_of,
    group_of,
    matrix_of,
    size_of,
)

ELEMENTS = 1 << 27
"""The elements of a bucket that a rank has in the mean: 256 MiB in bfloat16."""

OVERWRITTEN = "without Nesterov, torch overwrites momentum in bfloat16"
UNKNOWN = "empty, or its parts are no rectangles"

Group = Mapping[str, Any]
Row = Sequence[Any]
"""A parameter, its gradient and its momentum, all DTensors."""

Received = tuple[int, Part, torch.Tensor]
"""The place of a matrix among those of the step, a part of it, and the part's elements, flat."""


def step(
    optimizer: Any,
    group: Group,
    columns: Sequence[list[Any]],
    _: Split | None,
    elements: int = ELEMENTS,
) -> tuple[Any, Split | None]:
    """Do the work of `_init_group` for Muon, and step the sharded matrices.

    `columns` receive those that torch has to step. Return the result of `_init_group`, and the
    numbers of parameters by who steps them. All ranks of a mesh must have the same parameters with
    gradients, as for torch's own step. `elements` are those of a bucket for each rank in the mean.
    """
    returned = type(optimizer)._init_group(optimizer, group, *columns)
    rows: list[Row] = list(zip(*columns, strict=True))
    if not rows:
        return returned, None
    obstacle = obstacles.of_step(optimizer) or _obstacle_of_group(group)
    reasons = [obstacle or _obstacle(group, *row) for row in rows]
    on_mesh = defaultdict[int, list[Row]](list)
    for row, reason in zip(rows, reasons, strict=True):
        if not reason:
            on_mesh[id(row[0]._spec.mesh)].append(row)
    for of_mesh in on_mesh.values():
        _step(group, of_mesh, elements)
    left = [row for row, reason in zip(rows, reasons, strict=True) if reason]
    for number, column in enumerate(columns):
        column[:] = [row[number] for row in left]
    return returned, Split(len(rows) - len(left), Counter(filter(None, reasons)))


def _obstacle_of_group(group: Group) -> str:
    """Return the obstacle that all matrices have, or an empty string."""
    has_dtensor = any(type(value) is DTensor for name, value in group.items() if name != "params")
    # Torch refuses these itself, after it has changed the first momentum.
    is_refused = group["ns_steps"] >= 100 or len(group["ns_coefficients"]) != 3
    return obstacles.OPTIONS if has_dtensor or is_refused else ""


def _obstacle(group: Group, parameter: Any, grad: Any, momentum: Any) -> str:
    """Return why torch has to step a matrix, or an empty string."""
    obstacle = obstacles.of_parameter(parameter, grad, momentum)
    if obstacle := obstacle or obstacles.of_gradient(parameter, grad):
        return obstacle
    if not group["nesterov"] and momentum.dtype is torch.bfloat16:
        return OVERWRITTEN
    return "" if parameter.numel() and matrix_of(parameter._spec) else UNKNOWN


def _step(group: Group, rows: Sequence[Row], elements: int) -> None:
    """Step the matrices of one mesh, bucket by bucket."""
    lr, momentum = _to_scalar(group["lr"]), group["momentum"]
    local = [[tensor._local_tensor for tensor in row] for row in rows]

    def update(place: int) -> torch.Tensor:
        """Change the momentum as torch does, and return this rank's part of the update."""
        _, grad, buffer = local[place]
        buffer.lerp_(grad, 1 - momentum)
        part = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        return part.bfloat16()

    specs = tuple(parameter._spec for parameter, *_ in rows)
    ranks = group_of(specs[0].mesh)
    buckets = buckets_of(specs, dist.get_rank(ranks), dist.get_world_size(ranks), elements)
    changed = [tensor for parameter, _, buffer in rows for tensor in (parameter, buffer)]
    parts = [tensor for weight, _, buffer in local for tensor in (weight, buffer)]
    before = versions(parts)
    assert before is not None  # inference tensors are an obstacle
    with torch.no_grad(), raised_as_by_torch(changed, parts, before, listed=False):
        updates = _orthogonalised(group, ranks, buckets, update, parts[0].device)
        for place, _, flat in updates:
            weight = local[place][0]
            adjusted = _adjust_lr(lr, group["adjust_lr_fn"], specs[place].shape)
            weight.mul_(1 - lr * group["weight_decay"])
            weight.add_(flat.view(weight.shape), alpha=-adjusted)


def _orthogonalised(
    options: Group,
    group: Any,
    buckets: Sequence[Bucket],
    update: Callable[[int], torch.Tensor],
    device: torch.device,
) -> Iterator[Received]:
    """Yield this rank's part of each matrix's orthogonalised update.

    Parts travel while matrices are orthogonalised: those of the next bucket to their owners, and
    the results of the bucket before back. `update` makes this rank's part of a matrix's update.
    """

    def sent(bucket: Bucket) -> Iterator[Received]:
        # All ranks have a part of all matrices, but only the owner's copy sends its parts.
        updates = {place: update(place) for place, _ in bucket.back.received}
        parts = [updates[place] for place, _ in bucket.there.sent]
        return _exchanged(bucket.there, parts, group, device)

    nothing: Iterator[Received] = iter(())
    there, back = sent(buckets[0]), nothing
    for bucket, following in zip(buckets, [*buckets[1:], None], strict=True):
        # 1. Send the next bucket's parts to their owners, and wait for this bucket's.
        arrived, there = there, sent(following) if following else nothing
        whole = {
            place: torch.empty(shape, dtype=torch.bfloat16, device=device)
            for place, shape in bucket.owned.items()
        }
        for place, part, flat in arrived:
            target = whole[place][part]
            target.copy_(flat.view(target.shape))
        # 2. Orthogonalise this rank's matrices.
        for place, matrix in whole.items():
            whole[place] = _zeropower_via_newtonschulz(
                matrix, options["ns_coefficients"], options["ns_steps"], options["eps"]
            )
        # 3. Wait for the results of the bucket before, and send this bucket's back.
        yield from back
        parts = [whole[place][part] for place, part in bucket.back.sent]
        back = _exchanged(bucket.back, parts, group, device)
    yield from back


def _exchanged(
    moved: AllToAll, parts: Iterable[torch.Tensor], group: Any, device: torch.device
) -> Iterator[Received]:
    """Begin an all-to-all of these parts, ordered as `moved.sent`, and yield the received ones.

    The first one is awaited when it is asked for.
    """
    received = torch.empty(sum(moved.received_sizes), dtype=torch.bfloat16, device=device)
    sent = torch.cat([received[:0], *(part.reshape(-1) for part in parts)])
    work = dist.all_to_all_single(
        received, sent, moved.received_sizes, moved.sent_sizes, group=group, async_op=True
    )

    def wait() -> Iterator[Received]:
        work.wait()
        flat = received.split([size_of(part) for _, part in moved.received])
        for (place, part), elements in zip(moved.received, flat, strict=True):
            yield place, part, elements

    return wait()
