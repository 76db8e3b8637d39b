"""The arrays of the exact search, laid out for compiled code."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2


class Layout(NamedTuple):
    """Tables, their options, and the parts of these; options are numbered table after table.

    What is needed and left is in units of time, bytes of HBM and bytes of DDR.
    """

    first: Ints  # where the options of each table begin
    placement: Ints  # of each option
    parts: Ints  # how many each option has
    shard: Ints  # where the shards of each option begin in `estimate`
    estimate: Ints  # of each shard; on single devices equal ones follow each other
    need: Ints2  # of each estimate, shape (K, 3)
    largest: Ints  # units of time of an option's dearest shard
    size: Floats  # of each option: its dearest shard or most memory, as a part of a rank
    price: Floats2  # of each option, by kind of price, shape (P, O)
    weight: Floats2  # of a unit of time, of a byte of HBM and of DDR, shape (P, 3)
    density: Floats3  # the most price per unit or byte of any shard of an option, shape (P, O, 3)
    label: Ints  # equal for ranks with the same shards of all options
    capacity: Ints2  # of each rank, shape (W, 3)
    host_ranks: int
    on_hosts: bool  # whether any option goes onto hosts


class Stack(NamedTuple):
    """Where the search is: what is left of each rank, and a frame for each decision on the way.

    A frame decides the option of a table (`part` is -1) or where a part goes.
    """

    left: Ints2  # shape (W, 3)
    open: npt.NDArray[np.bool_]  # whether a table is undecided
    chosen: Ints  # option of each table
    where: Ints2  # rank or host of each part, shape (T, most parts)
    table: Ints  # of each frame
    part: Ints
    next: Ints  # the alternative to be tried next
    choice_count: Ints  # how many alternatives there are
    at: Ints  # where the part is now, -1 where nowhere
    choices: Ints2  # alternatives: options, ranks or hosts, shape (frames, most)
    barred: Ints  # bits of ranks or hosts where equal parts need not go
    alike: Ints2  # by frame the first rank (host) that each is like, shape (frames, W)
    figures: Ints  # depth, work done
    priced: Floats  # scratch by kind of price
    dense: Floats2  # scratch, shape (P, 3)
