"""Generated problems: a model of repeated blocks, forward and back, with shardings of each op."""

from dataclasses import replace

import numpy as np

from planners.placement.problem import FORBIDDEN, Ints, PlacementProblem, peak_of
from planners.placement.workloads import BlocksParameters

_STATES_OF_ALL = 3
_MIB = 2**20


def generated(name: str, asked: BlocksParameters) -> PlacementProblem:
    """Return the problem of a model; equal parameters give equal problems.

    An op of the forward pass is alive until the same op of the backward pass, as activations are.
    All blocks have the same costs, as the layers of a model have. A state is a way to shard the
    op: an edge between equal ways is free, one between other ways is a conversion, and a few
    conversions are forbidden.
    """
    random = np.random.default_rng(asked.seed)
    per_block, forward = asked.ops, asked.blocks * asked.ops
    # 1. One block: the number of states, costs and bytes of each op, and its edges.
    widths = random.integers(2, asked.states + 1, per_block)
    size = random.lognormal(2.0, 1.0, per_block)
    ways = [np.sort(random.permutation(asked.states)[:width]) for width in widths]
    costs = [
        np.rint(10 * size[op] * random.lognormal(0, 0.5, widths[op])) for op in range(per_block)
    ]
    usages = [
        np.rint(_MIB * size[op] / 2.0 ** random.integers(0, 4, widths[op]))
        for op in range(per_block)
    ]
    links = [(op, op + 1) for op in range(per_block)]
    links += [(op, op + int(random.integers(2, per_block))) for op in range(0, per_block, 3)]
    matrices = [
        _conversions(random, ways[tail], ways[head % per_block], size[tail]) for tail, head in links
    ]
    # 2. All blocks, then the backward pass as a mirror image.
    nodes = 2 * forward
    of_op = np.concatenate([np.arange(forward), np.arange(forward)[::-1]]) % per_block
    first = np.concatenate([[0], np.cumsum(widths[of_op])])
    start = np.arange(nodes)
    end = np.concatenate([nodes - np.arange(forward), np.arange(forward, nodes) + 2])
    edges, parts = [], []
    for block in range(asked.blocks):
        for (tail, head), matrix in zip(links, matrices, strict=True):
            u, v = block * per_block + tail, block * per_block + head
            if v < forward:
                edges += [(u, v), (nodes - 1 - u, nodes - 1 - v)]
                parts += [matrix, matrix]
    for u in range(0, forward, _STATES_OF_ALL):
        way = ways[u % per_block]
        edges.append((u, nodes - 1 - u))
        parts.append(_conversions(random, way, way, size[u % per_block]))
    usage = np.concatenate([usages[op] for op in of_op]).astype(np.int64)
    smallest = np.array([np.argmin(usages[op]) for op in of_op])
    tail, head = np.array(edges, dtype=np.int64).T.copy()
    problem = PlacementProblem(
        name=name,
        first=first,
        cost=np.concatenate([costs[op] for op in of_op]).astype(np.int64),
        usage=usage,
        start=start,
        end=end,
        tail=tail,
        head=head,
        offset=np.concatenate([[0], np.cumsum([part.size for part in parts])]),
        pairs=np.concatenate([part.ravel() for part in parts]),
        limit=0,
    )
    least = peak_of(problem, smallest)
    return replace(problem, limit=int(least * (1 + asked.spare)))


def _conversions(random: np.random.Generator, ways: Ints, other_ways: Ints, size: float) -> Ints:
    """Return the costs between two ops' ways to shard; 3 % are forbidden."""
    shape = len(ways), len(other_ways)
    matrix = np.rint(20 * size * random.lognormal(0, 0.7, shape)).astype(np.int64)
    matrix[random.random(shape) < 0.03] = FORBIDDEN
    matrix[ways[:, None] == other_ways[None, :]] = 0
    matrix[:, 0] = np.minimum(matrix[:, 0], int(100 * size))  # replicating is always possible
    matrix[0, :] = np.minimum(matrix[0, :], int(100 * size))
    return matrix
