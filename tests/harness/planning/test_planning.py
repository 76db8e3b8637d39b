"""Plans for use, explanations of them, and the plan that the family's planner makes today."""

import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import toy
import toy_registries

from harness.contract import Abilities, Explanation, Family, InfeasibleDecision, Measured, Prepared
from harness.contract.planning import Question
from harness.contract.variants import Variant
from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.plan import Baseline, baseline, explain, plan
from harness.topologies.lookup import find_topology


@pytest.fixture
def family() -> Family:
    (toys,) = toy_registries.bounded_registry().families
    return toys


def asked(family: Family, *variants: str, against: str = "", **parameters: str) -> Request:
    workload = WorkloadSpec("toy", parameters or {"size": "5"})
    return Request(family, workload, find_topology("dgx_a100_80gb", 2), variants, against)


def with_planning(family: Family, **changes) -> Family:
    planning = replace(family.abilities.planning, **changes)
    return replace(family, abilities=replace(family.abilities, planning=planning))


def test_what_the_variant_installs_is_gone_again(family):
    """A plan is made with the variant installed, and closed afterwards."""
    closed = []

    def prepare(problem: toy.ToyProblem) -> Prepared[toy.Decision]:
        def run() -> Measured[toy.Decision]:
            assert toy.World.changed
            return Measured(toy.round_robin(problem), 1.0, 1.0)

        return Prepared(run, toy.changed_world, lambda: closed.append(True))

    family.variants["installed"] = Variant("installed", prepare, "", "")
    assert plan(asked(family, "installed")).document == {"gpu_of_item": (0, 1, 0, 1, 0)}
    assert (toy.World.changed, closed) == (False, [True])


class TestExplanations:
    @pytest.fixture
    def questions(self) -> list[Question]:
        return []

    @pytest.fixture
    def family(self, family, questions) -> Family:
        def because(problem, decision, question) -> Explanation:
            questions.append(question)
            return Explanation(("So it is.",), (), {"items": list(decision)})

        return replace(family, abilities=Abilities(explain=because, explain_table=because))

    def test_a_family_explains_a_decision_and_its_difference_from_another(self, family, questions):
        """The question has the rank, the table or the other decision."""
        made = explain(asked(family, "same", against="own"), rank=1, top=2)
        assert str(made.cell) == "toy/same@toy[size=5]/dgx_a100_80gb:2"
        assert (made.against, made.explanation.document) == ("own", {"items": [0, 1, 0, 1, 0]})
        explain(asked(family, "same"), table="3")
        assert questions == [Question(1, 2, "own", (0,) * 5), Question(top=5, table="3")]

    @pytest.mark.parametrize(
        ("variant", "against", "options", "reason"),
        [
            ("same", "own", {"table": "3"}, "neither --rank nor --against"),
            ("same", "same", {}, "another variant than 'same' itself"),
        ],
    )
    def test_bad_questions_are_refused_before_planning(
        self, family, variant, against, options, reason
    ):
        """Options that exclude each other are refused."""
        with pytest.raises(UsageError, match=reason):
            explain(asked(family, variant, against=against), **options)


class TestBaseline:
    @pytest.fixture
    def family(self, family) -> Family:
        """The toys, with `same` as what their planner does today."""
        return with_planning(family, baseline=lambda problem: ("Toys", "same"))

    @staticmethod
    def compared(family: Family) -> Baseline | None:
        request = asked(family, "own")
        return baseline(request, plan(request))

    @staticmethod
    def prepare(family: Family, name: str, prepared: Prepared) -> None:
        family.variants[name] = replace(family.variants[name], prepare=lambda _: prepared)

    def test_the_model_of_the_named_variant_plans_where_that_is_not_installed(self, family):
        """The variant that must decide the same stands in."""
        family.variants["same"] = replace(family.variants["same"], requires=(toy.NOT_THERE,))
        assert self.compared(family) == Baseline("Toys", 3.0)

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (InfeasibleDecision("nothing fits"), "Toys finds no plan."),
            (KeyError(), "Toys's own plan is unknown: 'same' found no decision: KeyError"),
        ],
    )
    def test_without_a_plan_of_the_planner_there_is_a_reason(self, family, error, reason):
        """A planner that finds nothing is told apart from one that fails."""

        def fail() -> None:
            raise error

        self.prepare(family, "same", Prepared(fail))
        assert self.compared(family) == Baseline("Toys", None, reason)

    def test_a_planner_that_takes_too_long_is_stopped_even_if_it_catches_errors(
        self, family, monkeypatch
    ):
        """The signal handler and the timer are as before."""

        def endless() -> None:
            while True:
                with suppress(Exception):
                    time.sleep(60)

        closed: list[bool] = []
        self.prepare(family, "same", Prepared(endless, close=lambda: closed.append(True)))
        monkeypatch.setattr("harness.planning.plan._BASELINE_SECONDS", 0.02)
        before = signal.getsignal(signal.SIGALRM)
        assert self.compared(family) == Baseline("Toys", None, "Toys finds no plan within 0 s.")
        assert closed == [True]
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    def test_there_is_none_without_a_planner_or_near_another_plan(self, family):
        """A plan that moves little is not compared with the planner's."""
        assert self.compared(with_planning(family, baseline=None)) is None
        request = asked(family, "own")
        assert baseline(request, replace(plan(request), moved_gib=1.0)) is None
