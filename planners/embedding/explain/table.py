"""Explains the placement of one table: every option that it has, its cost, and what forbids it."""

from dataclasses import asdict

from harness.contract import Explanation, Question, unknown
from planners.embedding.decision import Plan
from planners.embedding.explain.explain import rank_of, table_explained
from planners.embedding.explain.placement import PlacedPlan, described
from planners.embedding.explain.text import alternatives
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays


def explain_table(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a table of a valid plan, by default on the rank where it costs most.

    All other tables stay where they are. Raises UsageError for an unknown table or rank.
    """
    space, devices = arrays(problem)
    placed = PlacedPlan(plan.options, devices.ranks)
    if question.table not in placed.names:
        raise unknown("table", question.table, placed.names)
    number = placed.names.index(question.table)
    option, load = placed.options[number], placed.load()
    rank = rank_of(question, int(placed.load(only=number).perf.argmax()), devices)
    table = table_explained(problem, space, devices, placed, rank, number)
    now, best, slowest = table.alternatives[0], table.best, int(load.perf.argmax())
    ranks = sorted({shard.rank for shard in option.shards})
    where = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    sentences = [
        f"Table {table.table} is placed as {now.option} on {where}: {now.ms:.4g} ms on all "
        f"ranks together, {table.rank_ms:.4g} of the {load.perf[rank]:.4g} ms of rank {rank}.",
        f"The slowest rank is rank {slowest} with {load.perf[slowest]:.4g} ms; "
        + (
            "no other placement of this table alone makes it faster."
            if best.present
            else f"with this table as {best.option}, and all others where they are, it would be "
            f"rank {best.slowest_rank} with {best.slowest_rank_ms:.4g} ms."
        ),
    ]
    if question.other_decision is not None:
        (other,) = (other for other in question.other_decision.options if other.fqn == option.fqn)
        sentences.append(f"{question.other} places it as {described(other)}.")
    return Explanation(
        tuple(sentences), (alternatives(table, rank, table.left_out),), asdict(table)
    )
