"""Step torch's Muon on sharded matrices with two all-to-alls for each bucket of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz
from torch.optim.optimizer import _to_scalar

from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.local_rule import Split, raised_as_by_torch, versions
from planners.dtensor.optimizer.muon_buckets import (
    Bucket,
    Matrix,
    Part,
    Way,
    buckets_of,
    group_of,
    matrix_of,
    size_of,
)

ELEMENTS = 1 << 27
"""The elements of a bucket that a rank has in the mean: 256 MiB in bfloat16."""

OVERWRITTEN = "without Nesterov, torch overwrites momentum in bfloat16"
UNKNOWN = "empty, or its parts are no rectangles"

_MOST_SETS = 100
"""The sets of matrices whose buckets are kept for a mesh; a step has one for each group."""

Group = Mapping[str, Any]
Row = Sequence[Any]
"""A parameter, its gradient and its momentum, all DTensors."""

Received = tuple[int, Part, torch.Tensor]
"""The place of a matrix among those of the step, a part of it, and the part's elements, flat."""


class _Mesh(NamedTuple):
    """A mesh, the process group of its ranks, and the parts and buckets of its matrices.

    An equal mesh of a later world has other process groups. The reference to the mesh keeps its id
    from being used again.
    """

    mesh: DeviceMesh
    group: Any
    matrices: dict[Any, Matrix | None]
    buckets: dict[Any, list[Bucket]]


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
        """Step the matrices of one mesh, bucket by bucket."""
        lr, momentum = _to_scalar(group["lr"]), group["momentum"]
        local = [[tensor._local_tensor for tensor in row] for row in rows]

        def update(place: int) -> torch.Tensor:
            """Change the momentum as torch does, and return this rank's part of the update."""
            _, grad, buffer = local[place]
            buffer.lerp_(grad, 1 - momentum)
            part = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            return part.bfloat16()

        changed = [tensor for parameter, _, buffer in rows for tensor in (parameter, buffer)]
        parts = [tensor for weight, _, buffer in local for tensor in (weight, buffer)]
        before = versions(parts)
        assert before is not None  # inference tensors are an obstacle
        with torch.no_grad(), raised_as_by_torch(changed, parts, before, listed=False):
            buckets = self._buckets(mesh, rows)
            updates = _orthogonalised(group, mesh.group, buckets, update, parts[0].device)
            for place, _, flat in updates:
                weight = local[place][0]
                adjusted = _adjust_lr(lr, group["adjust_lr_fn"], rows[place][0].shape)
                weight.mul_(1 - lr * group["weight_decay"])
                weight.add_(flat.view(weight.shape), alpha=-adjusted)

    def _buckets(self, mesh: _Mesh, rows: Sequence[Row]) -> list[Bucket]:
        """Return the buckets of a step; they are the same while the matrices are."""
        matrices = [matrix for row in rows if (matrix := self._matrix(row[0])) is not None]
        key = tuple(map(id, matrices))
        if key not in mesh.buckets:
            if len(mesh.buckets) == _MOST_SETS:
                mesh.buckets.clear()
            rank, ranks = dist.get_rank(mesh.group), dist.get_world_size(mesh.group)
            mesh.buckets[key] = buckets_of(matrices, rank, ranks, self._elements)
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
    way: Way, parts: Iterable[torch.Tensor], group: Any, device: torch.device
) -> Iterator[Received]:
    """Send parts in the order of `way.sent`; the iterator waits for what is received."""
    received = torch.empty(sum(way.received_sizes), dtype=torch.bfloat16, device=device)
    sent = torch.cat([received[:0], *(part.reshape(-1) for part in parts)])
    work = dist.all_to_all_single(
        received, sent, way.received_sizes, way.sent_sizes, group=group, async_op=True
    )

    def wait() -> Iterator[Received]:
        work.wait()
        flat = received.split([size_of(part) for _, part in way.received])
        for (place, part), elements in zip(way.received, flat, strict=True):
            yield place, part, elements

    return wait()
