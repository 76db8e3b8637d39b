"""Flame graphs of the steps of each family's ladder, as `shardbench report --flames` takes them."""

from pathlib import Path

from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison, Request
from harness.measuring.profile.flame_graph import Profiled
from harness.model.errors import ShardbenchError
from harness.model.settings import Settings
from shardbench.options import messages, write
from shardbench.problem_options import asked
from shardbench.progress import progress_display


def profile_ladders(
    results: Path, profiles: Path, registry: Registry, settings: Settings, seconds: float
) -> None:
    """Profile the steps of each ladder in a results file, and write the pages into a folder.

    Each variant is profiled for so many `seconds` at least, in turns with the others of its ladder.
    A family that cannot be profiled is told of, and the others go on.

    Raises:
        UsageError: the results cannot be read.
    """
    from reports.frames import read_results
    from reports.pages.flame_links import variant_pairs
    from reports.views.family import families

    profiles.mkdir(parents=True, exist_ok=True)
    for family in families(read_results(results)):
        steps, problem = variant_pairs(family), family.ladder_problem
        if not steps:
            continue
        try:
            profiled = _profiled(registry, f"{family.name}@{problem}", steps, settings, seconds)
            _write_pages(profiled, family.name, problem, steps, profiles)
        except ShardbenchError as error:
            messages.print(
                f"No flame graphs of {family.name}: {error}", style="yellow", soft_wrap=True
            )


def _profiled(
    registry: Registry,
    name: str,
    steps: list[tuple[str, str]],
    settings: Settings,
    seconds: float,
) -> dict[str, Profiled]:
    question = asked(registry, name, None, None, None)
    names = tuple(variant for variant, _ in steps)
    request = Request(question.family, question.workload, question.topology, names)
    comparison = Comparison(request, settings)
    with progress_display(str(comparison.problem)) as listen:
        return comparison.profile(names, seconds, listen)


def _write_pages(
    profiled: dict[str, Profiled],
    family: str,
    problem: str,
    steps: list[tuple[str, str]],
    profiles: Path,
) -> None:
    from reports.pages.flame_links import page_name
    from reports.pages.flames import flame_page

    for variant, before in steps:
        both = [profiled[name].profile for name in (variant, before) if name]
        page = flame_page(both, problem)
        write(profiles / page_name(family, problem, variant, before), page)
