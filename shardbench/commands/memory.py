"""`shardbench validate --memory`: estimated and counted bytes of the ranks of plans."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family
from harness.contract.abilities.estimates import BenchOptions
from harness.contract.family import load
from harness.estimates.memory import MemoryValidation, RankMemoryFound, validate_memory
from harness.measuring.jobs import start_server_for
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import to_json
from harness.model.ids import ProblemId, WorkloadSpec
from harness.model.topology import Topology
from harness.store.lines import Store
from reports.core.terminal import as_terminal
from reports.estimates import peaks_table, terms_table
from shardbench.options import messages, show_or_write, warn, write
from shardbench.progress import stage_display
from shardbench.results_file import measuring_into


def validate_the_memory(
    family: Family[Any, Any],
    problems: Sequence[tuple[WorkloadSpec, Topology]],
    plans: int,
    options: BenchOptions,
    out: Path,
    fresh: bool,
    json: str,
) -> None:
    """Measure the memory of plans on each problem; go on if one of several cannot be measured."""
    start_server_for([family])
    bench = load(family.abilities.measuring)(options)
    if not hasattr(bench, "memory"):
        raise UsageError(f"Family '{family.name}' does not measure the memory of its decisions.")
    done: list[MemoryValidation] = []
    for spec, placed in problems:
        problem = str(ProblemId(family.label(spec), placed.name, placed.gpus))
        stem = re.sub(r"[^A-Za-z0-9_.=-]+", "_", problem).strip("_")
        path = out / f"{stem}.memory.json"
        store = Store(path.with_suffix(".jsonl"), "memory", RankMemoryFound)
        try:
            with (
                measuring_into(store, fresh),
                stage_display() as begins,
            ):
                candidates = bench.memory(family.work.build(spec, placed), plans)
                one = validate_memory(
                    problem,
                    bench.device,
                    plans,
                    candidates,
                    options.seed,
                    store,
                    lambda what, done, of: begins(f"measuring {what}", done, of),
                )
                write(path, to_json(to_builtins(one), indent=1) + "\n")
        except ShardbenchError as error:
            if len(problems) == 1:
                raise
            warn(f"{spec}: {error}")
            continue
        messages.print(f"Wrote {path}")
        done.append(one)
    if done:
        found = to_builtins(done[0] if len(problems) == 1 else done)
        show_or_write(json, found, _shown(done))
    if len(done) < len(problems):
        raise click.exceptions.Exit(2)


def _shown(found: Sequence[MemoryValidation]) -> RenderableType:
    notes = dict.fromkeys(note for one in found for note in one.notes)
    return Group(
        as_terminal(terms_table(found), "Estimated over measured bytes, all ranks together\n"),
        "",
        as_terminal(peaks_table(found), "Peak of a step, by rank\n"),
        "",
        *(Text(note) for note in notes),
        Text(f"{found[0].device}; counted by torch's allocator, one rank at a time."),
    )
