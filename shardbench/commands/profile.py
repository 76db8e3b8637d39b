"""`shardbench profile`: profile a variant, or the difference between two variants."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from harness.measuring.profile.flame_graph import Comparer, Frame, Profile
from harness.measuring.profile.profiler import profile_variants
from harness.measuring.request import Request
from harness.model.errors import UsageError, printable
from harness.model.files import to_json
from harness.model.ids import CellId
from reports.core.formatting import percent, plural, seconds as duration
from reports.flames import explanation, flame_page, overview
from shardbench import completion, display, options, problems
from shardbench.command import command
from shardbench.progress import progress_display

# Calls below this share of the whole are left out.
_SMALLEST_SHARE = 0.02
# A chain of only calls is folded as long as this share of its time is passed on.
_PASSED_ON = 0.9
# A level of the tree takes four columns; names need the others.
_DEEPEST = 8


@command(
    "shardbench profile embedding upstream -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --against compiled",
)
@problems.problem
@click.argument(
    "variant",
    default="",
    help="The variant to profile, unless an id names it.",
    shell_complete=completion.variants,
)
@options.against
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
    if request.variants and variant:
        raise UsageError(f"The id names the variant already; leave out '{variant}'.")
    name = next(iter(request.variants), variant)
    if not name:
        raise UsageError(f"Name the variant to profile: FAMILY VARIANT, or one id, {problems.ID}.")
    if against == name:
        raise UsageError(f"--against takes another variant than '{name}' itself.")
    names = tuple(request.family.find(text).name for text in (name, against) if text)
    request = replace(request, variants=names)
    settings = options.settings_of(budget, budget, 0, memory)
    options.check_folder(out)  # fails before profiling if it is not writable
    with progress_display(str(request.problem)) as listen:
        profiles = list(profile_variants(request, settings, seconds, listen).values())
    display.show(shown(profiles))
    pair = CellId(request.family.name, "-against-".join(names), request.problem)
    files = {
        f"{request.cell_id(profile.variant).file_stem}.speedscope.json": speedscope(profile)
        for profile in profiles
    }
    files[f"{pair.file_stem}.flames.html"] = flame_page(profiles, str(request.problem))
    for name, content in files.items():
        options.write(out / name, content)
        options.messages.print(f"Wrote {out / name}")


def speedscope(profile: Profile) -> str:
    """Return a profile as a file of speedscope: each stack once, with the seconds of a call."""
    root = Frame("", f"{profile.family}/{profile.variant}")
    stacks = {(root, *stack): weight.seconds for stack, weight in profile.stacks.items()}
    places = {frame: place for place, frame in enumerate(dict.fromkeys(chain(*stacks)))}
    return to_json(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": frame.text} for frame in places]},
            "profiles": [
                {
                    "type": "sampled",
                    "name": root.text,
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": profile.seconds,
                    "samples": [[places[frame] for frame in stack] for stack in stacks],
                    "weights": list(stacks.values()),
                }
            ],
        }
    )


def shown(profiles: Sequence[Profile]) -> RenderableType:
    """Render the tree of each variant, the profiler's overhead, and the frames that matter most."""
    trees = (part for profile in profiles for part in (_tree(profile), ""))
    sentences = (*overview(profiles), "", *explanation(profiles))
    return Group(*trees, *(Text(printable(sentence)) for sentence in sentences))


def _tree(profile: Profile) -> Tree:
    """Return the calls of a variant, longest first; of a folded chain, the first and last call."""
    nodes = Comparer(profile, profile).tree()
    total = nodes[0].whole.seconds
    calls: dict[int, list[int]] = {}
    for place, node in enumerate(nodes[1:], 1):
        if node.whole.seconds > _SMALLEST_SHARE * total:
            calls.setdefault(node.parent, []).append(place)

    def label(place: int, folded: int = 0) -> Text:
        node = nodes[place]
        share = f"{duration(node.whole.seconds)}  {percent(node.whole.seconds / total)}"
        between = f"… {plural(folded, 'call')} … " if folded else ""
        return Text.assemble((share, "green"), f"  {between}{printable(node.frame.brief)}")

    def order(place: int) -> tuple[float, str]:
        return -nodes[place].whole.seconds, nodes[place].frame.text

    def grow(tree: Tree, caller: int, depth: int) -> None:
        if depth >= _DEEPEST and caller in calls:
            tree.add("…")
            return
        longest = sorted(calls.get(caller, []), key=order)
        for first in longest:
            branch, last, passed = tree.add(label(first)), first, 0
            enough = _PASSED_ON * nodes[first].whole.seconds
            while len(only := calls.get(last, [])) == 1 and nodes[only[0]].whole.seconds >= enough:
                last, passed = only[0], passed + 1
            if passed:
                branch = branch.add(label(last, passed - 1))
            grow(branch, last, depth + 1 + bool(passed))

    name = printable(f"{profile.family}/{profile.variant}")
    tree = Tree(Text(f"{name}, {duration(total)} per call", style="bold"))
    grow(tree, 0, 0)
    return tree
