"""Send the parts of matrices to their owners, and the results' parts back, by all-to-alls."""

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from planners.dtensor.optimizer.muon_layout import Bucket, Part


class Sent(NamedTuple):
    """A part of a matrix, which is known by its number in the bucket."""

    number: int
    part: Part


class Way(NamedTuple):
    """What this rank sends and receives in one all-to-all.

    Attributes:
        sent: the parts that it sends, in the order of the receiving ranks.
        received: the parts that it receives, in the order of the sending ranks.
        sent_sizes: the number of elements for each rank.
        received_sizes: the number of elements from each rank.
    """

    sent: Sequence[Sent]
    received: Sequence[Sent]
    sent_sizes: list[int]
    received_sizes: list[int]


class Exchange(NamedTuple):
    """The ways of a bucket's parts to the owners and back, and the numbers of owned matrices."""

    there: Way
    back: Way
    owned: Sequence[int]


def exchange_of(bucket: Bucket, rank: int, ranks: int) -> Exchange:
    """Return what a rank of the group exchanges; each part comes from the owner's copy alone."""
    owned: list[list[int]] = [[] for _ in range(ranks)]
    for number, owner in enumerate(bucket.owners.ranks):
        owned[owner].append(number)

    def parts(of: int, owner: int, *, from_one_copy: bool) -> list[Sent]:
        matrices = ((number, bucket.matrices[number]) for number in owned[owner])
        return [
            Sent(number, matrix.parts[of])
            for number, matrix in matrices
            if not from_one_copy or matrix.copy[of] == matrix.copy[owner]
        ]

    def way(*, from_one_copy: bool) -> tuple[list[list[Sent]], list[list[Sent]]]:
        """Return this rank's parts of each owner's matrices, and each rank's of this rank's."""
        return (
            [parts(rank, owner, from_one_copy=from_one_copy) for owner in range(ranks)],
            [parts(of, rank, from_one_copy=from_one_copy) for of in range(ranks)],
        )

    results, owners_results = way(from_one_copy=False)
    return Exchange(
        _way(*way(from_one_copy=True)), _way(owners_results, results), tuple(owned[rank])
    )


def _way(sent: Sequence[Sequence[Sent]], received: Sequence[Sequence[Sent]]) -> Way:
    def sizes(of_ranks: Sequence[Sequence[Sent]]) -> list[int]:
        return [sum(part.size for _, part in of_rank) for of_rank in of_ranks]

    return Way(
        functools.reduce(operator.iadd, sent, []),
        functools.reduce(operator.iadd, received, []),
        sizes(sent),
        sizes(received),
    )


class Transfer:
    """One all-to-all under way."""

    def __init__(
        self, way: Way, parts: Iterable[torch.Tensor], like: torch.Tensor, group: Any
    ) -> None:
        """Send parts, in the order of `way.sent`; all are of `like`'s type and device."""
        flat = [part.reshape(-1) for part in parts]
        self._way = way
        self._input = torch.cat(flat) if flat else like.new_empty(0)
        self._output = like.new_empty(sum(way.received_sizes))
        self._work = dist.all_to_all_single(
            self._output,
            self._input,
            way.received_sizes,
            way.sent_sizes,
            group=group,
            async_op=True,
        )

    def received(self) -> list[tuple[Sent, torch.Tensor]]:
        """Wait, and return the received parts, flat."""
        if self._work is not None:
            self._work.wait()
        sizes = [part.size for _, part in self._way.received]
        return list(zip(self._way.received, self._output.split(sizes), strict=True))
