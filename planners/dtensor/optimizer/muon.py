"""Step torch's Muon on sharded matrices with two all-to-alls for each bucket."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz
from torch.optim.optimizer import _to_scalar

from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.local_rule import Split, raised_as_by_torch, versions
from planners.dtensor.optimizer.muon_exchange import Exchange, Transfer, exchange_of
from planners.dtensor.optimizer.muon_layout import Bucket, Matrix, buckets_of, group_of, matrix_of

ELEMENTS = 1 << 27
"""The elements of a bucket that a rank has in the mean: 256 MiB in bfloat16."""

OVERWRITTEN = "without Nesterov, torch overwrites momentum in bfloat16"
UNKNOWN = "empty, or its parts are no rectangles"

Group = Mapping[str, Any]
Row = Sequence[Any]
"""A parameter, its gradient and its momentum, all DTensors."""


class _Mesh(NamedTuple):
    """A mesh, the process group of its ranks, and the parts and buckets of its matrices.

    An equal mesh of a later world has other process groups. The reference to the mesh keeps its id
    from being used again.
    """

    mesh: DeviceMesh
    group: Any
    matrices: dict[Any, Matrix | None]
    buckets: dict[Any, list[tuple[Bucket, Exchange]]]


class MuonStep:
    """The work of `_init_group` for Muon: step the sharded matrices, and leave the rest to torch.

    All ranks of a mesh must have the same parameters with gradients, as for torch's own step.
    """

    def __init__(self, elements: int = ELEMENTS) -> None:
        self._elements = elements
        self._meshes: dict[int, _Mesh] = {}

    def __call__(
        self, optimizer: Any, group: Group, columns: Sequence[list[Any]], _: Split | None
    ) -> tuple[Any, Split | None]:
        """Step a group's matrices; `columns` receive those that torch has to step.

        Return the result of `_init_group`, and the numbers of parameters by who steps them.
        """
        returned = type(optimizer)._init_group(optimizer, group, *columns)
        rows: list[Row] = list(zip(*columns, strict=True))
        if not rows:
            return returned, None
        obstacle = obstacles.of_step(optimizer) or _obstacle_of_group(group)
        reasons = [obstacle or self._obstacle(group, *row) for row in rows]
        on_mesh = defaultdict[int, list[Row]](list)
        for row, reason in zip(rows, reasons, strict=True):
            if not reason:
                on_mesh[id(row[0]._spec.mesh)].append(row)
        for mesh, of_mesh in on_mesh.items():
            self._step(self._meshes[mesh], group, of_mesh)
        left = [row for row, reason in zip(rows, reasons, strict=True) if reason]
        for number, column in enumerate(columns):
            column[:] = [row[number] for row in left]
        return returned, Split(len(rows) - len(left), Counter(filter(None, reasons)))

    def _obstacle(self, group: Group, parameter: Any, grad: Any, momentum: Any) -> str:
        """Return why torch has to step a matrix, or an empty string."""
        obstacle = obstacles.of_parameter(parameter, grad, momentum)
        if obstacle := obstacle or obstacles.of_gradient(parameter, grad):
            return obstacle
        if not group["nesterov"] and momentum.dtype is torch.bfloat16:
            return OVERWRITTEN
        return "" if parameter.numel() and self._matrix(parameter) else UNKNOWN

    def _matrix(self, parameter: Any) -> Matrix | None:
        spec = parameter._spec
        known = self._meshes.get(id(spec.mesh))
        if known is None:
            known = _Mesh(spec.mesh, group_of(spec.mesh), {}, {})
            self._meshes[id(spec.mesh)] = known
        key = spec.placements, spec.shard_order, spec.shape
        if key not in known.matrices:
            known.matrices[key] = matrix_of(spec, known.group)
        return known.matrices[key]

    def _step(self, mesh: _Mesh, group: Group, rows: Sequence[Row]) -> None:
        """Step the matrices of one mesh.

        1. Update the momentum on the local parts, as torch does.
        2. Orthogonalise the updates, bucket by bucket.
        3. Decay the weights and add the results' parts, as they come back.
        """
        lr, momentum = _to_scalar(group["lr"]), group["momentum"]
        local = [[tensor._local_tensor for tensor in row] for row in rows]
        changed = [tensor for parameter, _, buffer in rows for tensor in (parameter, buffer)]
        parts = [tensor for weight, _, buffer in local for tensor in (weight, buffer)]
        before = versions(parts)
        assert before is not None  # inference tensors are an obstacle
        with torch.no_grad(), raised_as_by_torch(changed, parts, before, listed=False):
            updates = []
            for _, grad, buffer in local:
                buffer.lerp_(grad, 1 - momentum)
                update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
                updates.append(update.bfloat16())
            buckets = self._buckets(mesh, rows)
            for place, update in _orthogonalised(group, mesh.group, buckets, updates):
                weight = local[place][0]
                adjusted = _adjust_lr(lr, group["adjust_lr_fn"], rows[place][0].shape)
                weight.mul_(1 - lr * group["weight_decay"])
                weight.add_(update.view(weight.shape), alpha=-adjusted)

    def _buckets(self, mesh: _Mesh, rows: Sequence[Row]) -> list[tuple[Bucket, Exchange]]:
        """Return the buckets of a step; they are the same while the matrices are."""
        matrices = [matrix for row in rows if (matrix := self._matrix(row[0])) is not None]
        key = tuple(map(id, matrices))
        if key not in mesh.buckets:
            ranks, rank = dist.get_world_size(mesh.group), dist.get_rank(mesh.group)
            mesh.buckets[key] = [
                (bucket, exchange_of(bucket, rank, ranks))
                for bucket in buckets_of(matrices, ranks, self._elements)
            ]
        return mesh.buckets[key]


def _obstacle_of_group(group: Group) -> str:
    """Return the obstacle that all matrices have, or an empty string."""
    has_dtensor = any(type(value) is DTensor for name, value in group.items() if name != "params")
    # Torch refuses these itself, after it has changed the first momentum.
    is_refused = group["ns_steps"] >= 100 or len(group["ns_coefficients"]) != 3
    return obstacles.OPTIONS if has_dtensor or is_refused else ""


def _orthogonalised(
    options: Group,
    group: Any,
    buckets: Sequence[tuple[Bucket, Exchange]],
    updates: Sequence[torch.Tensor],
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the place of each matrix, and this rank's part of its orthogonalised update, flat.

    Parts travel while matrices are orthogonalised: those of the next bucket to their owners, and
    the results of the bucket before back.
    """

    def sent(at: int) -> Transfer:
        bucket, exchange = buckets[at]
        parts = [updates[bucket.places[number]] for number, _ in exchange.there.sent]
        return Transfer(exchange.there, parts, updates[0], group)

    def results(at: int, back: Transfer) -> Iterator[tuple[int, torch.Tensor]]:
        for (number, _), update in back.received():
            yield buckets[at][0].places[number], update

    there, back = sent(0), None
    for at, (bucket, exchange) in enumerate(buckets):
        received = there.received()
        if at + 1 < len(buckets):
            there = sent(at + 1)
        whole = {
            number: updates[0].new_empty(bucket.matrices[number].shape) for number in exchange.owned
        }
        for (number, (rows, columns)), part in received:
            target = whole[number][rows, columns]
            target.copy_(part.view(target.shape))
        for number, update in whole.items():
            whole[number] = _zeropower_via_newtonschulz(
                update, options["ns_coefficients"], options["ns_steps"], options["eps"]
            )
        if back is not None:
            yield from results(at - 1, back)
        parts = [whole[number][rows, columns] for number, (rows, columns) in exchange.back.sent]
        back = Transfer(exchange.back, parts, updates[0], group)
    if back is not None:
        yield from results(len(buckets) - 1, back)
