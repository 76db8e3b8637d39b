"""Made-up results of a planner that does not exist: every number here is invented."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from matplotlib.figure import Figure

from harness.model.statement import OTHERS, Claim, Statement
from reports.core.frames import Results, read_results
from reports.family.data import FamilyView, families

QUALITIES = [
    {
        "name": "max_widget_ms",
        "unit": "ms",
        "better": "lower",
        "meaning": "Cost of the heaviest widget as the made-up planner estimates it, not GPU time.",
    },
    {"name": "imbalance", "unit": "", "better": "lower", "meaning": "Heaviest over mean widget."},
]
METERS = {"copies": "Copies made.", "lookups": "Look-ups made."}
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

MADE_UP = {"unit": "s", "conditions": "made up"}
# variant: same_as, claim, decision, CPU seconds at 10 boxes, exponent, quality, phases' shares
VARIANTS: dict[str, tuple[Any, ...]] = {
    "slow-copy": (None, None, "reference", 1.0, 1.5, 20.0, (0.7, 0.2, 0.1)),
    "half-copy": ("slow-copy", (1200, 600), "same", 0.6, 1.5, 20.0, (0.5, 0.33, 0.17)),
    "quick-copy": ("slow-copy", (600, 150), "same", 0.37, 1.5, 20.0, (0.19, 0.54, 0.27)),
    "no-copy": ("slow-copy", None, "same", 0.35, 1.4, 20.0, (0.14, 0.57, 0.29)),
    "even": (None, None, "own", 0.02, 1.0, 29.0, (0.0, 0.1, 0.9)),
    "exhaustive": (None, None, "own", 6.0, 2.5, 18.2, (0.0, 0.95, 0.05)),
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
    **changes: Any,
) -> dict[str, Any]:
    """Return a line of a results file; keyword arguments replace its fields."""
    workload = f"crates[boxes={boxes},seed=1]"
    faster = ratio is not None and ratio < 0.97
    line = {
        "schema": 1,
        "cell": f"{family}/{variant}@{workload}/toy_rack:4",
        "family": family,
        "variant": variant,
        "summary": f"Boxes by {variant}.",
        "source": "made-up/boxes#12",
        "workload": workload,
        "topology": "toy_rack",
        "gpus": 4,
        "reference": "slow-copy",
        "same_as": None,
        "purpose": "the copying ladder",
        "status": "ok",
        "reason": None,
        "wall_s": {"median": seconds * 1.01, "samples": [seconds * 1.01] * 6},
        "cpu_s": {"median": seconds, "samples": [seconds] * 6},
        "ratio": ratio and {"value": ratio, "low": ratio * 0.96, "high": ratio * 1.05, "pairs": 6},
        "verdict": ratio and ("faster" if faster else "slower"),
        "verdict_reason": "",
        "decision": "own",
        "fingerprint": "c0ffee" + variant.encode().hex()[:10],
        "quality": {"max_widget_ms": 20.0, "imbalance": 1.3},
        "counters": {"copies": 1000, "lookups": 20},
        "phases": {"copy": 0.7, "rate": 0.2, "other": 0.1},
        "progress": None,
        "projection_s": None,
        "claim": None,
        "facts": {"boxes": boxes, "GiB": 12.5, "assigned": "weight"},
        "size_name": "boxes",
        "size": boxes,
        "qualities": QUALITIES,
        "counter_meanings": METERS,
        "environment": ENVIRONMENT,
    }
    return line | changes


def over_budget(variant: str, boxes: int, **changes: Any) -> dict[str, Any]:
    """Return the line of a cell that exceeded its time budget."""
    nothing = dict.fromkeys(("wall_s", "cpu_s", "decision", "fingerprint", "verdict"))
    return cell(
        variant,
        boxes=boxes,
        status="over budget",
        reason="The call passed its budget of 30 s.",
        quality={},
        counters={},
        phases={},
        progress={"done": 110, "total": 7001, "unit": "attempts", "elapsed_s": 30.0},
        projection_s=1909.0,
        **nothing | changes,
    )


def _as_the_reference(decision: str) -> dict[str, str]:
    """Return the common fingerprint of decisions that equal the reference's."""
    return {} if decision == "own" else {"fingerprint": "c0ffee"}


def family_lines(sizes: tuple[int, ...] = (5, 10, 20, 40, 80)) -> list[dict[str, Any]]:
    """Return lines of a whole family on problems of several sizes, with one call over budget."""
    lines = []
    for boxes in sizes:
        for name, (same_as, claim, decision, base, power, quality, shares) in VARIANTS.items():
            growth = boxes / 10
            seconds = base * growth**power
            if name == "exhaustive" and boxes == max(sizes) and len(sizes) > 1:
                lines.append(over_budget(name, boxes))
                continue
            lines.append(
                cell(
                    name,
                    boxes=boxes,
                    seconds=seconds,
                    ratio=None if decision == "reference" else seconds / growth**1.5,
                    same_as=same_as,
                    **_as_the_reference(decision),
                    claim=claim and {"before": claim[0], "after": claim[1], **MADE_UP},
                    decision=decision,
                    verdict=None if decision == "reference" else ("faster", "slower")[base > 1],
                    quality={"max_widget_ms": quality * growth, "imbalance": quality / 16},
                    counters={"copies": round(1000 * base * boxes), "lookups": 20 * boxes},
                    phases=dict(
                        zip(("copy", "rate", "other"), (s * seconds for s in shares), strict=True)
                    ),
                )
            )
    return lines


BOUNDED = [
    QUALITIES[0],
    {
        "name": "least_widget_ms",
        "unit": "ms",
        "better": "higher",
        "meaning": "No widget is lighter.",
        "bounds": "max_widget_ms",
    },
    {"name": "gap", "unit": "", "better": "lower", "meaning": "How far it is from that."},
    QUALITIES[1],
]
# variant: same_as, decision, CPU seconds at 10 boxes, exponent, quality over its bound
PAST: dict[str, tuple[Any, ...]] = {
    "no-copy": ("slow-copy", "reference", 0.35, 1.4, 1.25),
    "compiled": ("no-copy", "same", 0.02, 1.2, 1.25),
    "certified": (None, "own", 2.1, 1.9, 1.0005),
    "sorted": (None, "own", 0.01, 1.0, 1.5),
}


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


def past_lines(
    sizes: tuple[int, ...] = (400, 1600), stopped: tuple[int, ...] = (1600,)
) -> list[dict[str, Any]]:
    """Return lines of problems with bounds, on which variants are compared with `no-copy`.

    On the last problem, `no-copy` is stopped.
    """
    lines = []
    for boxes in sizes:
        least = 16.0 * boxes / 10
        for name, (same_as, decision, base, power, over) in PAST.items():
            seconds = base * (boxes / 10) ** power
            whole = PAST["no-copy"][2] * (boxes / 10) ** PAST["no-copy"][3]
            shared: dict[str, Any] = {
                "against": "no-copy",
                "same_as": same_as,
                "purpose": "past the ladder",
                "qualities": BOUNDED,
                "peak_memory_bytes": 300 * 2**20 + round(seconds * 2**20),
            }
            if decision == "reference" and boxes in stopped:
                lines.append(over_budget(name, boxes, **shared, memory_before_bytes=None))
                continue
            compared = decision != "reference" and boxes not in stopped
            lines.append(
                cell(
                    name,
                    boxes=boxes,
                    seconds=seconds,
                    ratio=seconds / whole if compared else None,
                    decision=decision,
                    **_as_the_reference(decision),
                    quality={
                        "max_widget_ms": least * over,
                        "least_widget_ms": least,
                        "gap": over - 1,
                        "imbalance": over,
                    },
                    phases={"search": seconds * 0.7, "rate": seconds * 0.3},
                    memory_before_bytes=300 * 2**20,
                    **shared,
                )
            )
    return lines


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Write lines as a results file and return its path."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


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

    with (
        mock.patch.object(Figure, "savefig", save),
        mock.patch.object(Figure, "draw_without_rendering"),
    ):
        yield
