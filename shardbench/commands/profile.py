"""`shardbench profile`: profile a variant, or the difference between two variants."""

from dataclasses import replace
from pathlib import Path

import click

from harness.measuring.profile.profiler import profile_variants
from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.model.ids import CellId
from shardbench import completion, display, options, problem_options
from shardbench.command import command
from shardbench.progress import progress_display


@command(
    "shardbench profile embedding upstream -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --against compiled",
)
@problem_options.problem
@click.argument(
    "variant",
    default="",
    help="The variant to profile, unless an id names it.",
    shell_complete=completion.variant,
)
@problem_options.against
@click.option(
    "--seconds",
    type=options.POSITIVE,
    default=2.0,
    help="Seconds to profile each variant for, by repeating short calls.",
)
@options.budget(600.0)
@options.memory
@click.option("--out", type=options.PATH, default="profiles", help="Folder for the files.")
def profile(
    request: Request,
    variant: str,
    against: str,
    seconds: float,
    budget: float,
    memory: float | None,
    out: Path,
) -> None:
    """Profile a variant, or two and their difference, as flame graphs.

    Shows a tree of calls; writes a page of flame graphs, and files for speedscope.
    """
    from reports.flames import flame_page
    from shardbench.display.profile import shown

    if request.variants and variant:
        raise UsageError(f"The id names the variant already; leave out '{variant}'.")
    name = next(iter(request.variants), variant)
    if not name:
        raise UsageError(
            f"Name the variant to profile: FAMILY VARIANT, or one id, {problem_options.ID}."
        )
    if against == name:
        raise UsageError(f"--against takes another variant than '{name}' itself.")
    names = tuple(request.family.find(text).name for text in (name, against) if text)
    request = replace(request, variants=names)
    settings = options.settings_of(budget, budget, 0, memory)
    options.check_folder(out)  # fails before profiling if it is not writable
    with progress_display(str(request.problem)) as listen:
        profiled = profile_variants(request, settings, seconds, listen)
    profiles = [profiled[profiled_name].profile for profiled_name in names]
    pair = CellId(request.family.name, "-against-".join(names), request.problem)
    files = {
        out / f"{request.cell_id(profiled_name).file_stem}.{suffix}": text
        for profiled_name in names
        for suffix, text in profiled[profiled_name].files.items()
    }
    files[out / f"{pair.file_stem}.flames.html"] = flame_page(profiles, str(request.problem))
    for path, text in files.items():
        options.write(path, text)
    display.show(shown(profiles))
    for path in files:
        options.messages.print(f"Wrote {path}")
