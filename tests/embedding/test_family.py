"""The family is found by its entry point; its variants, claims and problems exist."""

import subprocess
import sys
from pathlib import Path

from harness.contract.registry import load_registry
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.studies import LADDER, OTHER_PROPOSERS, OWN
from planners.embedding.workloads.catalog import load_tables


def test_it_is_found_through_its_entry_point():
    """The registry has the family itself."""
    assert load_registry().find("embedding") is FAMILY


def test_every_variant_is_in_the_ladder_or_makes_its_own_decisions():
    """TorchRec's other proposers decide for themselves."""
    others = {"as-captured", "captured-compiled", "default-compiled"}
    assert set(FAMILY.variants) == {*LADDER, *OTHER_PROPOSERS, *OWN, *others}
    assert all(FAMILY.find(name).same_as is None for name in OTHER_PROPOSERS)


def test_all_problems_and_variants_of_its_studies_exist():
    """Their names are parsed as a user's are."""
    for text in (*FAMILY.benchmarks, *(study.problem for study in FAMILY.studies)):
        problem = ProblemId.parse(text)
        assert load_tables(problem.workload)
        assert find_topology(problem.topology, problem.gpus).gpus == problem.gpus
    for study in FAMILY.studies:
        assert [FAMILY.find(name).name for name in study.variants] == list(study.variants)


def test_asv_finds_it():
    """Its problems are parameters of the benchmarks."""
    code = "import benchmarks.families as suite; assert suite.embedding.params[0]"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=root)
