"""The cache of the family `dtensor`."""

from benchmarks.base import FamilyBenchmarks
from benchmarks.checks import Checks


def setup_cache(suite: FamilyBenchmarks) -> Checks:
    """Check the cells of this family alone."""
    return suite.check_cells()
