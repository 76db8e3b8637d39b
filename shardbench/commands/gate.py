"""`shardbench gate`: compare measured cells with a committed file of expectations."""

import shlex
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from harness.gate.expectations import (
    Expectations,
    first_suite,
    load_expectations,
    to_measure,
    to_toml,
)
from harness.gate.judging import (
    HARNESS_FAILED,
    GateVerdict,
    is_as_it_must_be,
    judge_cells,
    renewed,
    without_noise,
)
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import CellId
from harness.model.settings import Settings
from harness.store.cells import CellStore, read_whole
from reports import gate as words
from reports.core.formatting import plural
from shardbench import options
from shardbench.command import Command, command, write_out
from shardbench.results_file import measure, measuring_into

_USAGE = 2
_DEFAULT_RESULTS = Path("results/gate.jsonl")


class GateCommand(Command):
    """A command that exits with 3 for all errors, because 1 and 2 are verdicts of the gate.

    A command with an option `--gate` does so only with that option.
    """

    def make_context(self, info_name: Any, args: list[str], *more: Any, **kwargs: Any) -> Any:
        """Parse the arguments; wrong ones exit with 3 instead of 2."""
        is_choice = any("--gate" in parameter.opts for parameter in self.params)
        self._judges = not is_choice or "--gate" in args
        try:
            return super().make_context(info_name, args, *more, **kwargs)
        except Exception as error:
            if self._judges and getattr(error, "exit_code", None) == _USAGE:
                error.exit_code = HARNESS_FAILED  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; all exceptions except interrupts exit with 3."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except (Exception, SystemExit) as error:  # rich exits if standard error is closed
            if not self._judges:
                raise
            with suppress(Exception, SystemExit):
                if not isinstance(error, ShardbenchError):
                    traceback.print_exception(error)
                options.messages.print(_reason_of(error), style="red")
        raise click.exceptions.Exit(HARNESS_FAILED)


@command("shardbench gate expectations.toml --markdown verdict.md", cls=GateCommand)
@click.argument(
    "expectations", type=options.PATH, required=False, help="The file of expectations (TOML)."
)
@click.option("--judge", type=options.PATH, help="Judge this results file; nothing is measured.")
@click.option(
    "--init",
    is_flag=True,
    help="Write first expectations, of a small suite or the results of --judge.",
)
@click.option(
    "--results",
    type=options.PATH,
    help=f"Store the cells here, {_DEFAULT_RESULTS} by default; an old file is set aside.",
)
@click.option(
    "--markdown", default="", help="Write the verdict as Markdown to this file; - for stdout."
)
@click.option(
    "--new",
    type=options.PATH,
    help="Write new expectations here if something differs; by default next to the old.",
)
@options.measuring(budget_s=60.0, seconds_s=10.0)
def gate(
    expectations: Path | None,
    judge: Path | None,
    init: bool,
    results: Path | None,
    markdown: str,
    new: Path | None,
    settings: Settings,
) -> None:
    """Judge decisions, counters and times by a file of expectations.

    Measures decisions, counters, qualities and ratios, and compares them with the committed file.

    Exit codes: 0 as expected; 1 something differs, for worse or for better; 2 a ratio may have
    become worse; 3 the harness failed, or something was not measured.
    """
    if expectations is None and not init:
        raise UsageError(
            "Name a file of expectations; 'shardbench gate --init expectations.toml' makes one."
        )
    path = expectations or Path("expectations.toml")
    if judge is not None and results is not None:
        raise UsageError("--judge measures nothing, so it takes no --results.")
    results = results or judge or _DEFAULT_RESULTS
    if init:
        if new or markdown:
            raise UsageError("--init judges nothing, so it takes no --new and no --markdown.")
        _check_distinct(path, results)
        _init(path, results, settings, measures=judge is None)
        return
    new = new or path.with_name(f"{path.stem}.new.toml")
    page = None if markdown in ("", "-") else Path(markdown)
    _check_distinct(path, results, new, *filter(None, [page]))
    options.check_writable(new)
    text = words.failure_markdown("The gate did not finish.")
    if page:
        options.check_writable(page)
        options.write(page, text)
    try:
        expected = load_expectations(path)
        renamed: Mapping[CellId, CellId] = {}
        if judge is None:
            expected, renamed = _measure(expected, results, settings)
        verdict = judge_cells(expected, read_whole(results))
        steps = _next_steps(verdict, expected, path, new, settings)
        said = words.notes(verdict, renamed.items())
        text = words.markdown(verdict, said, steps)
        write_out(text if markdown == "-" else words.plain(verdict, said, steps))
    except Exception as error:
        text = words.failure_markdown(_reason_of(error))
        if markdown == "-":
            with suppress(ShardbenchError):
                write_out(text)
        raise
    finally:
        if page:
            options.write(page, text)
    raise click.exceptions.Exit(verdict.exit_code)


def _check_distinct(*paths: Path) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise UsageError(f"{path} is named twice; each file needs a name of its own.")
        seen.add(path.resolve())


def _init(target: Path, results: Path, settings: Settings, measures: bool) -> None:
    """Write first expectations to `target`: of the results, or of a suite measured into them now.

    The suite is measured twice, to leave out counts that do not repeat.
    """
    if target.exists():
        raise UsageError(f"{target} is there already; name a file that is not.")
    options.check_writable(target)
    if measures:
        suite, left_out = first_suite(options.found_registry())
        for reason in left_out:
            options.warn(reason)
        _measure(suite, results, settings)
    verdict = judge_cells(Expectations(), read_whole(results))
    first = renewed(Expectations(), verdict)
    if measures:
        options.messages.print("Once more, to leave out counts that do not repeat:")
        _measure(first, results, settings)
        first = without_noise(first, judge_cells(first, read_whole(results)))
    options.write(target, to_toml(first))
    for judged in verdict.judged:
        if judged.kind == "regression":
            options.warn(
                f"{judged.cell} failed or makes a wrong decision, so it has no figures in {target}."
            )
    write_out(
        f"Wrote {target} with {plural(len(verdict.judged), 'cell')}. Commit it; from then on\n"
        f"  {shlex.join(['shardbench', 'gate', str(target)])}\n"
        "judges every change by it, in CI too (docs/ci.md has a job for GitHub).\n"
    )


def _measure(
    expected: Expectations, results: Path, settings: Settings
) -> tuple[Expectations, Mapping[CellId, CellId]]:
    """Measure the cells of expectations; returns these and changed ids as `to_measure` does."""
    requests, expected, renamed = to_measure(expected, options.found_registry())
    store = CellStore(results)
    with measuring_into(store, fresh=True):
        _, done = measure(requests, store, settings)
    for finished in done:
        if finished.refused:
            raise UsageError(finished.refused)
    return expected, renamed


def _next_steps(
    verdict: GateVerdict, expected: Expectations, path: Path, new: Path, settings: Settings
) -> list[tuple[str, Sequence[str]]]:
    """Write new expectations if they differ, and return the suggested next steps."""
    deviating = [judged for judged in verdict.judged if judged.kind]
    if not deviating:
        return []
    steps: list[tuple[str, Sequence[str]]] = []
    proposed = renewed(expected, verdict)
    if proposed.cells != expected.cells:
        options.write(new, to_toml(proposed))
        kept = sum(
            judged.kind == "not measured" or not is_as_it_must_be(judged.measured)
            for judged in deviating
        )
        but = f", except {plural(kept, 'cell')} that keep their expectations" if kept else ""
        steps.append((f"To accept what differs{but}:", [shlex.join(["mv", str(new), str(path)])]))
    elif verdict.kind != "inconclusive":
        steps.append(("There is nothing to accept: repair the failing cells, or remove them.", []))
    if verdict.count("inconclusive"):
        seconds = f"{3 * settings.sampling.seconds:g}"
        longer = shlex.join(["shardbench", "gate", str(path), "--seconds", seconds])
        steps.append(("To time inconclusive ratios longer:", [longer]))
    worst = next(judged for judged in deviating if judged.kind == verdict.kind)
    return [*steps, ("To look at the first of them:", words.look_closer(worst))]


def _reason_of(error: BaseException) -> str:
    """Return the reason for the gate's failure in one sentence."""
    if isinstance(error, ShardbenchError):
        return str(error)
    return f"The gate itself failed: {type(error).__name__}. Nothing is judged."
