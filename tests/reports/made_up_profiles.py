"""Made-up profiles of two variants."""

from harness.measuring.profile.flame_graph import Frame, Profile, Stack, Weight

COPY = Frame("copy", "deepcopy")
PLAN = Frame("planner", "Planner.plan")
PROBLEM = "synthetic[tables=40,memory=tight]/dgx_h100:8"


def profile(stacks: dict[Stack, float], variant: str = "upstream", **facts) -> Profile:
    weights = {stack: Weight(s, s * 0.001) for stack, s in stacks.items()}
    return Profile(
        **{"family": "toy", "variant": variant, "stacks": weights, "calls": 4, "unprofiled_s": 1.0}
        | facts
    )


UPSTREAM = profile({(): 0.05, (PLAN,): 0.9, (PLAN, COPY): 2.1})
COMPILED = profile({(): 0.05, (PLAN,): 1.17}, "compiled")
