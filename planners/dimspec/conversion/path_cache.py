"""The search with a cache of paths that is read: hpcaitech/ColossalAI fills one and never looks."""

from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion, GreedySearch
from planners.dimspec.conversion.specs import ShardingSpec, SharedDimSpec

_Key = tuple[Mesh, tuple[int, ...], Partition, Partition]


class PathCache(GreedySearch):
    """Conversions by all that decides them.

    That is the mesh by its value, because meshes are copied; the tensor's shape; the source with
    the order of its dimensions, which decides ties; and the target, whose order does not.
    """

    def __init__(self) -> None:
        super().__init__(SharedDimSpec.forgotten())
        self._known: dict[_Key, Conversion] = {}

    def convert(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Return the conversion as `GreedySearch.convert` does, in lists of its own."""
        key = source.mesh, source.shape, source.partition, tuple(sorted(target.partition))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = super().convert(source, target)
        return Conversion(list(found.path), list(found.comms), found.cost)
