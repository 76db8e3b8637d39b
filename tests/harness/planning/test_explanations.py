"""Explaining a decision: plan once, also with another variant, and ask the family to explain."""

from dataclasses import replace

import pytest
import toy

from harness.contract import Abilities, Family
from harness.contract.planning import Explanation, Question, Section
from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.plan import explain
from harness.topologies.lookup import find_topology

TOPOLOGY = find_topology("dgx_a100_80gb", 2)
WORKLOAD = WorkloadSpec("toy", {"size": "5"})
ASKED: list[Question] = []


def because(problem: toy.ToyProblem, decision: toy.Decision, question: Question) -> Explanation:
    ASKED.append(question)
    section = Section("Items", ("item", "GPU"), ((0.0, 1.0),))
    return Explanation(("So it is.",), (section,), {"items": list(decision)})


@pytest.fixture
def family() -> Family:
    (found,) = toy.bounded_registry().families
    ASKED.clear()
    return replace(found, abilities=Abilities(explain=because))


def asked(family: Family, variant: str, against: str = "") -> Request:
    return Request(family, WORKLOAD, TOPOLOGY, (variant,), against)


def test_a_family_explains_what_was_decided(family: Family):
    made = explain(asked(family, "same"), rank=1, top=2)
    assert str(made.cell) == "toy/same@toy[size=5]/dgx_a100_80gb:2"
    assert made.explanation.document == {"items": [0, 1, 0, 1, 0]}
    assert made.planning_s >= 0
    assert [Question(1, 2)] == ASKED


def test_it_is_given_what_the_other_variant_decided(family: Family):
    assert explain(asked(family, "same", "own")).against == "own"
    (question,) = ASKED
    assert (question.other, question.other_decision) == ("own", (0,) * 5)


def test_a_single_table_is_explained_by_a_function_of_its_own(family: Family):
    """A named table goes to the family's function for tables, with no rank and no other variant."""
    with pytest.raises(UsageError, match="does not explain single tables"):
        explain(asked(family, "same"), table="3")
    able = replace(family, abilities=Abilities(explain_table=because))
    explain(asked(able, "same"), table="3")
    assert [Question(top=5, table="3")] == ASKED
    for request, rank in ((asked(able, "same", "own"), None), (asked(able, "same"), 1)):
        with pytest.raises(UsageError, match="neither --rank nor --against"):
            explain(request, rank, table="3")


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_does_not_exist_is_refused_before_planning(family: Family, rank: int):
    """The ranks are those of the topology, so nothing has to be planned to refuse another one."""
    with pytest.raises(UsageError, match=f"no rank {rank}; ranks are from 0 to 1"):
        explain(asked(family, "raises"), rank=rank)
