"""The tree of `shardbench profile` in 80 columns; every number here is invented."""

import io

from rich.console import Console

from harness.measuring.profile.flame_graph import BUILT_IN, Frame, Profile, Stack, Weight
from shardbench.commands.profile import shown

PLAN = Frame("lib.planner.planners", "Planner.plan")
COPY = Frame("copy", "deepcopy")
SORT = Frame(BUILT_IN, "list.sort")


def lines(stacks: dict[Stack, float], variant: str = "upstream") -> list[str]:
    weights = {stack: Weight(seconds, seconds * 0.001) for stack, seconds in stacks.items()}
    profile = Profile("toy", variant, weights, calls=4, unprofiled_s=1.0)
    console = Console(width=80, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    console.print(shown([profile]))
    return console.file.getvalue().splitlines()


def test_calls_are_a_tree_with_names_times_and_shares():
    """The longest call is first, and calls below 2 % are left out."""
    seconds = {(): 0.05, (PLAN,): 0.9, (PLAN, COPY): 2.0, (PLAN, SORT): 0.25, (SORT,): 0.01}
    assert lines(seconds)[:5] == [
        "toy/upstream, 3.21 s per call",
        "└── 3.15 s  98 %  planners.Planner.plan",
        "    ├── 2.00 s  62 %  copy.deepcopy",
        "    └── 250 ms  8 %  list.sort (built-in)",
        "",
    ]
    assert lines({})[:2] == ["toy/upstream, 0 s per call", ""]


def test_a_chain_of_only_calls_is_folded_to_its_ends():
    """A call with much time of its own ends the chain."""
    chain = tuple(Frame("lib.module", f"call{n}") for n in range(40))
    tree = lines({chain: 1.0, chain[:20]: 0.02, chain[:5]: 0.02, (COPY,): 0.1})
    assert tree[1:4] == [
        "├── 1.04 s  91 %  module.call0",
        "│   └── 1.00 s  88 %  … 38 calls … module.call39",
        "└── 100 ms  9 %  copy.deepcopy",
    ]
    tree = lines({chain[:4]: 1.0, chain[:2]: 1.0})
    assert [line.rpartition(".")[2] for line in tree[1:5]] == ["call0", "call1", "call2", "call3"]


def test_any_depth_and_any_name_fit_80_columns():
    """Long names are wrapped, deeper calls are marked, and control characters are escaped."""
    deep = Frame("lib.module", "Class." + "f" * 90)
    stacks = {(deep,) * n: 0.1 for n in range(1, 60)} | {
        (deep,) * n + (COPY,): 1.0 for n in range(60)
    }
    tree = lines(stacks, "\x1b[2J")
    assert max(map(len, tree)) <= 80
    assert "\x1b" not in "".join(tree)
    assert any(line.strip(" │├└─") == "…" for line in tree)
    assert "f" * 90 in "".join(line.strip(" │├└─") for line in tree)
