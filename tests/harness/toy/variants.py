"""The toy family's variants that end in the check, well or badly."""

import os
import subprocess

from harness.contract import Claim, Measured, NotApplicable, Prepared, UsageError
from toy.family import NOT_THERE, TOY, Decision, ToyProblem, round_robin, work


@TOY.decider("reference", reference=True, source="a textbook")
def reference(problem: ToyProblem) -> Decision:
    """Deal the items out in turn."""
    work(200)
    return round_robin(problem)


@TOY.decider("same", same_as="reference", claim=Claim(before=20, after=10, unit="min"))
def same(problem: ToyProblem) -> Decision:
    """Decide the same with a tenth of the work."""
    work(20)
    return round_robin(problem)


@TOY.variant("different", same_as="reference")
def different(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        if problem.folder is not None:
            with (problem.folder / "different-calls").open("a") as file:
                file.write("x")
        return tuple(reversed(round_robin(problem)))

    return Prepared(run)


@TOY.variant("same-as-different", same_as="different")
def same_as_different(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: tuple(reversed(round_robin(problem))))


@TOY.variant("own")
def own(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: (0,) * problem.size)


@TOY.decider("plain", same_as="reference")
def plain(problem: ToyProblem) -> Decision:
    return round_robin(problem)


@TOY.variant("unprepared")
def unprepared(problem: ToyProblem):
    return round_robin(problem)


@TOY.decider("raises", same_as="reference")
def raises(problem: ToyProblem) -> Decision:
    raise ValueError("no item\nlikes me")


@TOY.decider("unprintable", same_as="reference")
def unprintable(problem: ToyProblem) -> Decision:
    raise ValueError("a path that is no text: \udcff")


@TOY.decider("refuses", same_as="reference")
def refuses(problem: ToyProblem) -> Decision:
    """Raise a UsageError, as a library that is called with wrong arguments may do."""
    raise UsageError("too many items for me")


@TOY.variant("infeasible")
def infeasible(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: (problem.gpus,) * problem.size)


@TOY.variant("missing", requires=(NOT_THERE, "sys"))
def missing(problem: ToyProblem) -> Prepared[Decision]:
    raise AssertionError("a variant that is not installed must not be prepared")


@TOY.variant("elsewhere", upstream="toy-1.0")
def elsewhere(problem: ToyProblem) -> Prepared[Decision]:
    raise AssertionError("a variant whose upstream is not installed must not be prepared")


@TOY.variant("aloof")
def aloof(problem: ToyProblem) -> Prepared[Decision]:
    raise NotApplicable("It has no part in this.")


@TOY.variant("prints", same_as="reference")
def prints(problem: ToyProblem) -> Prepared[Decision]:
    print("noise while preparing")

    def run() -> Decision:
        print("noise while running")
        os.write(1, b"noise below Python\n")
        subprocess.run(["echo", "noise of a grandchild"], check=True)
        return round_robin(problem)

    return Prepared(run)


@TOY.decider("measured", same_as="reference")
def measured(problem: ToyProblem) -> Measured[Decision]:
    work(10)
    return Measured(
        round_robin(problem), 0.5, 0.25, counters={"dealt": 77}, phases={"abroad": 0.25}
    )
