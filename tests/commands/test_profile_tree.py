"""The tree of `shardbench profile` in 80 columns; every number here is invented."""

import io

from rich.console import Console

from harness.measuring.profile.flame_graph import BUILT_IN, Frame, Profile, Stack, Weight
from shardbench.display.profile import shown

PLAN = Frame("lib.planner.planners", "Planner.plan")
COPY = Frame("copy", "deepcopy")
SORT = Frame(BUILT_IN, "list.sort")


def profile(stacks: dict[Stack, float], variant: str = "upstream") -> Profile:
    weights = {stack: Weight(seconds, seconds * 0.001) for stack, seconds in stacks.items()}
    return Profile("toy", variant, weights, calls=4, unprofiled_s=1.0)


def lines(*profiles: Profile) -> list[str]:
    console = Console(width=80, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    console.print(shown(profiles))
    return console.file.getvalue().splitlines()


def test_each_side_has_a_tree_with_names_times_and_shares():
    found = lines(
        profile({(): 0.05, (PLAN,): 0.9, (PLAN, COPY): 2.0, (PLAN, SORT): 0.05, (SORT,): 0.01}),
        profile({(PLAN,): 0.5, (PLAN, COPY): 0.25, (PLAN, SORT): 0.25}, "compiled"),
    )
    assert found[:4] == [
        "toy/upstream, 3.01 s per call",
        "└── 2.95 s  98 %  planners.Planner.plan",
        "    └── 2.00 s  66 %  copy.deepcopy",
        "",
    ]
    assert found[4:9] == [
        "toy/compiled, 1.00 s per call",
        "└── 1.00 s  100 %  planners.Planner.plan",
        "    ├── 250 ms  25 %  copy.deepcopy",
        "    └── 250 ms  25 %  list.sort (built-in)",
        "",
    ]
    assert "in upstream and" in " ".join(found[9:]), "the sentences about the difference follow"


def test_a_chain_of_only_calls_is_folded_to_its_ends():
    chain = tuple(Frame("lib.module", f"call{n}") for n in range(40))
    found = lines(profile({chain: 1.0, chain[:20]: 0.02, chain[:5]: 0.02, (COPY,): 0.1}))
    assert found[1:5] == [
        "├── 1.04 s  91 %  module.call0",
        "│   └── 1.00 s  88 %  … 38 calls … module.call39",
        "└── 100 ms  9 %  copy.deepcopy",
        "",
    ]
    assert lines(profile({chain[:2]: 1.0}))[1:3] == [
        "└── 1.00 s  100 %  module.call0",
        "    └── 1.00 s  100 %  module.call1",
    ]


def test_a_call_with_much_time_of_its_own_is_not_folded():
    chain = tuple(Frame("lib.module", f"call{n}") for n in range(4))
    found = lines(profile({chain: 1.0, chain[:2]: 1.0}))
    assert [line.rpartition(".")[2] for line in found[1:5]] == ["call0", "call1", "call2", "call3"]


def test_any_depth_and_any_name_fit_80_columns():
    deep = Frame("lib.module", "Class." + "f" * 90)
    stacks = {(deep,) * n: 0.1 for n in range(1, 60)} | {
        (deep,) * n + (COPY,): 1.0 for n in range(60)
    }
    found = lines(profile(stacks))
    assert max(map(len, found)) <= 80
    assert any(line.strip(" │├└─") == "…" for line in found), "what is deeper is marked"
    text = "".join(line.strip(" │├└─") for line in found)
    assert "module.Class." in text
    assert "f" * 90 in text, "a long name is wrapped, not cut"


def test_names_cannot_write_to_the_terminal():
    found = lines(profile({(Frame("m", "\x1b[2J[red]:tm:"),): 1.0}, "\x1b[2J"))
    assert "\x1b" not in "".join(found)
    assert "[red]:tm:" in found[1]


def test_a_call_without_samples_is_a_tree_without_branches():
    assert lines(profile({}))[:2] == ["toy/upstream, 0 s per call", ""]
