"""Script: compare variants of the toy family, and print the cells as JSON.

python run_comparison.py WORKLOAD BUDGET VARIANTS [PRELOAD]
"""

import sys
from functools import partial

import toy

from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.files import to_json
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import find_topology


def main(workload: str, budget: str, variants: str, preload: str = "") -> None:
    registry = partial(toy.preloading_registry, preload) if preload else toy.toy_registry
    topology = find_topology("dgx_a100_80gb", 2)
    names = tuple(variants.split(","))
    request = Request(registry().find("toy"), WorkloadSpec.parse(workload), topology, names)
    settings = Settings(float(budget), SamplingRule(seconds=0.1))
    cells = Comparison(request, settings, registry).run()
    print(to_json([cell.record() for cell in cells]))


if __name__ == "__main__":
    main(*sys.argv[1:])
