"""Made-up results and profiles of a planner that does not exist: every number here is invented."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from made_up_cells import line, write
from matplotlib.figure import Figure

from harness.measuring.profile.flame_graph import Frame, Profile, Stack, Weight
from harness.model.statement import OTHERS, Claim, Statement
from reports.core.frames import Results, read_results
from reports.family.data import FamilyView, families

_COST = {"name": "max_widget_ms", "unit": "ms", "better": "lower", "meaning": "Of the heaviest."}
_IMBALANCE = {"name": "imbalance", "unit": "", "better": "lower", "meaning": "Heaviest over mean."}
_BOUND = {"name": "least_widget_ms", "unit": "ms", "better": "higher", "meaning": "No less."}
QUALITIES = [_COST, _IMBALANCE]
BOUNDED = [*(_COST, _BOUND | {"bounds": "max_widget_ms"}, _IMBALANCE | {"name": "gap"}, _IMBALANCE)]
ENVIRONMENT = {
    "shardbench": "0.1.0",
    "python": "3.11.7",
    "packages": {"widgets": "1.2.3", "gadgets": "4.5"},
    "cpu": "Made-up CPU",
    "cores": 2,
    "load": 0.3,
    "seed": 0,
    "started": "2026-01-02T03:04:05Z",
}

# variant: same_as, claim, CPU seconds at 10 boxes, exponent, quality
VARIANTS: dict[str, tuple[Any, ...]] = {
    "slow-copy": (None, None, 1.0, 1.5, 20.0),
    "half-copy": ("slow-copy", (1200, 600), 0.6, 1.5, 20.0),
    "quick-copy": ("slow-copy", (600, 150), 0.37, 1.5, 20.0),
    "no-copy": ("slow-copy", None, 0.35, 1.4, 20.0),
    "even": (None, None, 0.02, 1.0, 29.0),
    "exhaustive": (None, None, 6.0, 2.5, 18.2),
}
# variant: same_as, CPU seconds at 10 boxes, exponent, quality over its bound
PAST: dict[str, tuple[Any, ...]] = {
    "no-copy": ("slow-copy", 0.35, 1.4, 1.25),
    "compiled": ("no-copy", 0.02, 1.2, 1.25),
    "certified": (None, 2.1, 1.9, 1.0005),
    "sorted": (None, 0.01, 1.0, 1.5),
}


def assert_in_order(text: str, *parts: str) -> None:
    """Assert that a text contains these parts in this order."""
    place = 0
    for part in parts:
        assert part in text[place:], f"{part!r} not in order in {text!r}"
        place = text.index(part, place) + len(part)


def cell(
    variant: str = "slow-copy",
    /,
    *,
    boxes: int = 10,
    family: str = "boxing",
    seconds: float = 1.0,
    ratio: float | None = None,
    decision: str | None = "own",
    **changes: Any,
) -> dict[str, Any]:
    """Return a line of a results file; keyword arguments replace its fields."""
    fields = {
        "summary": f"Boxes by {variant}.",
        "source": "made-up/boxes#12",
        "reference": "slow-copy",
        "against": "slow-copy",
        "same_as": None,
        "purpose": "the copying ladder",
        "wall_s": {"median": seconds * 1.01, "samples": [seconds * 1.01] * 6},
        "cpu_s": {"median": seconds, "samples": [seconds] * 6},
        "ratio": ratio and {"value": ratio, "low": ratio * 0.96, "high": ratio * 1.05, "pairs": 6},
        "verdict": ratio and ("faster" if ratio < 0.97 else "slower"),
        "decision": decision,
        "fingerprint": "c0ffee" if decision in ("reference", "same") else f"c0ffee {variant}",
        "quality": {"max_widget_ms": 20.0, "imbalance": 1.3},
        "phases": {"copy": 0.7, "rate": 0.2, "other": 0.1},
        "progress": None,
        "projection_s": None,
        "claim": None,
        "facts": {"boxes": boxes, "GiB": 12.5, "assigned": "weight"},
        "size_name": "boxes",
        "size": boxes,
        "qualities": QUALITIES,
        "counter_meanings": {"copies": "Copies made.", "lookups": "Look-ups made."},
        "environment": ENVIRONMENT,
    }
    return line(variant, f"crates[boxes={boxes},seed=1]/toy_rack:4", family, **fields | changes)


def over_budget(variant: str, boxes: int, **changes: Any) -> dict[str, Any]:
    """Return the line of a cell that exceeded its time budget."""
    return cell(
        variant,
        boxes=boxes,
        status="over budget",
        reason="The call passed its budget of 30 s.",
        progress={"done": 110, "total": 7001, "unit": "attempts", "elapsed_s": 30.0},
        projection_s=1909.0,
        quality={},
        counters={},
        phases={},
        **dict.fromkeys(("wall_s", "cpu_s", "decision", "fingerprint", "verdict")) | changes,
    )


def family_lines(sizes: tuple[int, ...] = (5, 10, 20, 40, 80)) -> list[dict[str, Any]]:
    """Return lines of a whole family on problems of several sizes, with one call over budget."""
    lines = []
    for boxes in sizes:
        growth = boxes / 10
        for name, (same_as, claim, base, power, quality) in VARIANTS.items():
            if name == "exhaustive" and boxes == max(sizes) and len(sizes) > 1:
                lines.append(over_budget(name, boxes))
                continue
            seconds, is_reference = base * growth**power, name == "slow-copy"
            made_up = {"unit": "s", "conditions": "made up"}
            line = cell(
                name,
                boxes=boxes,
                seconds=seconds,
                ratio=None if is_reference else seconds / growth**1.5,
                same_as=same_as,
                claim=claim and {"before": claim[0], "after": claim[1], **made_up},
                decision="reference" if is_reference else "same" if same_as else "own",
                quality={"max_widget_ms": quality * growth, "imbalance": quality / 16},
                phases={"copy": seconds * 0.6, "rate": seconds * 0.4},
            )
            lines.append(line)
    return lines


def past_lines(
    sizes: tuple[int, ...] = (400, 1600), stopped: tuple[int, ...] = (1600,)
) -> list[dict[str, Any]]:
    """Return lines of problems with bounds, on which variants are compared with `no-copy`.

    On the problems `stopped`, `no-copy` is stopped.
    """
    lines = []
    for boxes in sizes:
        growth, least = boxes / 10, 1.6 * boxes
        whole = PAST["no-copy"][1] * growth ** PAST["no-copy"][2]
        for name, (same_as, base, power, over) in PAST.items():
            seconds, is_reference = base * growth**power, name == "no-copy"
            shared: dict[str, Any] = {
                "against": "no-copy",
                "same_as": same_as,
                "purpose": "past the ladder",
                "qualities": BOUNDED,
                "peak_memory_bytes": 300 * 2**20 + round(seconds * 2**20),
            }
            if is_reference and boxes in stopped:
                lines.append(over_budget(name, boxes, **shared, memory_before_bytes=None))
                continue
            bounded = {"max_widget_ms": least * over, "least_widget_ms": least}
            line = cell(
                name,
                boxes=boxes,
                seconds=seconds,
                ratio=None if is_reference or boxes in stopped else seconds / whole,
                decision="reference" if is_reference else "same" if same_as else "own",
                quality={**bounded, "gap": over - 1, "imbalance": over},
                memory_before_bytes=300 * 2**20,
                **shared,
            )
            lines.append(line)
    return lines


def with_ranks(lines: list[dict[str, Any]], amount: int = 4) -> list[dict[str, Any]]:
    """Return lines of results; those with a quality get the loads of `amount` ranks.

    The last rank has the largest load.
    """

    def ranks(heaviest: float) -> dict[str, Any]:
        columns, capacities = ["ms", "HBM GiB", "DDR GiB"], [None, 16.0, 64.0]
        rows = [[heaviest * (n + 1) / amount, 10.0 + n, 0.0] for n in range(amount)]
        return {"columns": columns, "rows": rows, "capacities": capacities, "bar": "ms"}

    return [
        line | ({"ranks": ranks(line["quality"]["max_widget_ms"])} if line["quality"] else {})
        for line in lines
    ]


def statement(
    use: Any, name: str, before: str, after: str, boxes: int = 400, **more: Any
) -> Statement:
    """Return a statement on a problem with this number of boxes."""
    problem = f"crates[boxes={boxes},seed=1]/toy_rack:4"
    return Statement(use, name, problem, before, after, family="boxing", **more)


BOXES = statement(
    "headline", "Boxes", "no-copy", "compiled", claim="Boxes #12", counter="copies",
    before_is="a stand-in", next_step="Use `compiled`.",
)  # fmt: skip
DECLARED = {
    "boxing": (
        BOXES,
        statement("headline", "Boxes", "no-copy", "certified", measure="max_widget_ms"),
        statement(
            "claim", "Boxes #12", "slow-copy", "quick-copy", boxes=80,
            published=Claim(20, 2.5, "min"), source="made-up/boxes#12",
        ),
        statement("goal", "compiled is 10 times faster", "no-copy", "compiled", at_least=10),
        statement("goal", "compiled takes a second", "", "compiled", measure="seconds", at_most=1),
        statement(
            "goal", "certified is never worse", OTHERS, "certified",
            measure="max_widget_ms", at_most=1,
        ),
        statement(
            "goal", "certified needs twice the memory at most", "no-copy", "certified",
            measure="peak memory", at_most=2,
        ),
    )
}  # fmt: skip
"""What the family of `past_lines` declares: one goal of times and one of memory are missed."""


def results_of(folder: Path, lines: list[dict[str, Any]]) -> Results:
    """Write lines to a results file and return the results read from it."""
    return read_results(write(folder / "results.jsonl", lines))


def family_of(folder: Path, lines: list[dict[str, Any]]) -> FamilyView:
    """Return the only family of a results file with these lines."""
    (family,) = families(results_of(folder, lines))
    return family


@contextmanager
def blank_figures() -> Iterator[None]:
    """Leave all figures blank, because drawing takes most of a report's time."""

    def save(figure: Figure, file: Any, **options: Any) -> None:
        file.write("<svg></svg>")

    with mock.patch.object(Figure, "savefig", save):
        yield


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
