"""Explains the placement of one table: every option that it has, its cost, and what forbids it."""

from dataclasses import asdict

from harness.contract import Explanation, Question, unknown
from planners.embedding.decision import Plan
from planners.embedding.explain.explain import table_explained
from planners.embedding.explain.placement import PlacedPlan
from planners.embedding.explain.text import alternatives
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays


def explain_table(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a table of a valid plan, with all other tables where they are.

    Raises UsageError for an unknown table.
    """
    space, devices = arrays(problem)
    placed = PlacedPlan(plan.options, devices.ranks)
    if question.table not in placed.names:
        raise unknown("table", question.table, placed.names)
    number = placed.names.index(question.table)
    rank = int(placed.load(only=number).perf.argmax())
    table = table_explained(problem, space, devices, placed, rank, number)
    now, best = table.alternatives[0], table.best
    sentence = (
        f"Table {table.table} is placed as {now.option}; the slowest rank is rank "
        f"{now.slowest_rank} with {now.slowest_rank_ms:.4g} ms. "
    )
    if best.present:
        sentence += "No other placement of this table alone makes it faster."
    else:
        sentence += (
            f"With this table as {best.option}, it would be rank {best.slowest_rank} with "
            f"{best.slowest_rank_ms:.4g} ms."
        )
    return Explanation((sentence,), (alternatives(table, rank, table.left_out),), asdict(table))
