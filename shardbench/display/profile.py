"""The output of `shardbench profile`: a tree of calls for each variant, and sentences."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from harness.measuring.profile.flame_graph import Comparer, Profile
from harness.model.errors import printable
from reports.core.formatting import percent, plural, seconds
from reports.flames import explanation, overview

# Calls below this share of the whole are left out.
_SMALLEST_SHARE = 0.02
# A chain of only calls is folded as long as this share of its time is passed on.
_PASSED_ON = 0.9
# A level of the tree takes four columns; names need the others.
_DEEPEST = 8


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
        share = f"{seconds(node.whole.seconds)}  {percent(node.whole.seconds / total)}"
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
    tree = Tree(Text(f"{name}, {seconds(total)} per call", style="bold"))
    grow(tree, 0, 0)
    return tree
