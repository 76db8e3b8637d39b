"""Flame graphs of the steps of each family's ladder, as `shardbench report --flames` takes them."""

from dataclasses import replace
from pathlib import Path

from harness.contract.registry import Registry
from harness.measuring.profiling import profile_variants
from harness.model.errors import ShardbenchError
from harness.model.settings import Settings
from shardbench.options import warn, write
from shardbench.problem_options import find_problem
from shardbench.progress import progress_display


def profile_ladders(
    results: Path, profiles: Path, registry: Registry, settings: Settings, seconds: float
) -> None:
    """Profile the steps of each ladder in a results file, and write the pages into a folder.

    Each variant is profiled for at least `seconds`, in turns with the others of its ladder. A
    family that cannot be profiled gets a warning, and the others go on.
    """
    from reports.core.frames import read_results
    from reports.family.data import families
    from reports.family.flame_links import page_name, variant_pairs
    from reports.profile.page import flame_page

    for family in families(read_results(results)):
        steps, problem = variant_pairs(family), family.ladder_problem
        if not steps:
            continue
        names = [variant for variant, _ in steps]
        try:
            found = find_problem(registry, f"{family.name}@{problem}")
            request = replace(found, variants=tuple(names))
            with progress_display(str(request.problem)) as listen:
                profiled = profile_variants(request, settings, seconds, listen)
            for variant, before in steps:
                both = [profiled[name].profile for name in (variant, before) if name]
                page = flame_page(both, problem)
                write(profiles / page_name(family.name, problem, variant, before), page)
        except ShardbenchError as error:
            warn(f"No flame graphs of {family.name}: {error}")
