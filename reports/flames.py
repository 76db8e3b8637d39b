"""The page of a profile: flame graphs of one variant or two, their difference, and sentences."""

import math
from collections.abc import Sequence
from itertools import chain

from harness.measuring.profile.flame_graph import Comparer, Node, Profile, Share
from reports.core.formatting import percent, plural, seconds
from reports.core.page import render

MOST_FRAMES = 5
# A larger share of the CPU time in other threads and processes makes a profile say little.
_MUCH_UNSEEN = 0.1
# Two variants that the profiler slows down differently by more than this are hard to compare.
_MUCH_SLOWER = 1.25


def flame_page(profiles: Sequence[Profile], problem: str) -> str:
    """Return the page of one variant's profile, or of two and their difference.

    The page is one HTML file that loads nothing from the network.
    """
    first, last = profiles[0], profiles[-1]
    variants = [profile.variant for profile in profiles]
    nodes = Comparer(first, last).tree()
    places = {frame: place for place, frame in enumerate(dict.fromkeys(n.frame for n in nodes))}
    data = {
        "variants": variants,
        "frames": [(frame.module, frame.text) for frame in places],
        "nodes": [_node(node, places[node.frame]) for node in nodes],
    }
    against = f" --against {last.variant}" if len(profiles) > 1 else ""
    return render(
        "flames.html.j2",
        generator="shardbench profile",
        title=" against ".join([f"{first.family}/{first.variant}", *variants[1:]]),
        problem=problem,
        variants=variants,
        overview=overview(profiles),
        explanation=explanation(profiles),
        data=data,
        measure=f"shardbench compare '{first.family}/{first.variant}@{problem}'{against}",
    )


def _node(node: Node, frame: int) -> list[float]:
    """Return what `flames.js` reads: frame, caller, seconds of own and whole time, width, differs.

    Each pair of seconds is of the first variant and of the last.
    """
    pairs = ((time.seconds, time.against) for time in (node.own, node.whole))
    times = [float(f"{seconds:.6g}") for seconds in (*chain(*pairs), node.width)]
    return [frame, node.parent, *times, int(node.whole.differs)]


def overview(profiles: Sequence[Profile]) -> list[str]:
    """Return a sentence per variant: profiled calls, time per call, and the profiler's overhead."""
    sentences = []
    for profile in profiles:
        sentence = (
            f"{profile.variant}: {plural(profile.calls, 'call')} profiled, "
            f"{_seconds(profile.seconds)} per call"
        )
        if profile.unseen > _MUCH_UNSEEN:
            sentence += (
                f". {percent(profile.unseen)} of its CPU time is in other threads or processes; "
                "its profile shows the calling thread waiting for them."
            )
        elif math.isnan(profile.overhead):
            sentence += "."
        else:
            sentence += (
                f" with the profiler and {_seconds(profile.unprofiled_s)} without: "
                f"profiling made a call {profile.overhead:.1f} times as long."
            )
        sentences.append(sentence)
    slowed = [one.overhead for one in profiles if one.unseen <= _MUCH_UNSEEN and one.overhead > 0]
    if slowed and max(slowed) > _MUCH_SLOWER * min(slowed):
        sentences.append(
            f"Profiling slowed one variant {max(slowed) / min(slowed):.1f} times as much as the "
            "other, so shares of their difference are distorted: many short calls look longer than "
            "they are."
        )
    return sentences


def explanation(profiles: Sequence[Profile]) -> list[str]:
    """Return a sentence for each of up to five frames.

    One profile: frames with most of the time. Two: frames with most of the difference between
    them. All times are measured under the profiler.
    """
    first, last = profiles[0], profiles[-1]
    comparer = Comparer(first, last)
    total, shares = comparer.total(), comparer.shares()
    if len(profiles) == 1:
        return [
            f"{_itself(share)} {_seconds(share.own.seconds)} of {_seconds(total.seconds)} per "
            f"call: {percent(share.own.seconds / total.seconds)}."
            for share in shares[:MOST_FRAMES]
            if share.own.seconds
        ]
    distinct = [share for share in shares if share.own.stands_out][:MOST_FRAMES]
    if not distinct:
        return [f"No frame stands out from the noise between {first.variant} and {last.variant}."]
    sentences = []
    for share in distinct:
        sentence = (
            f"{_itself(share)} {_seconds(share.own.seconds)} per call in {first.variant} and "
            f"{_seconds(share.own.against)} in {last.variant}"
        )
        if total.differs:
            part = percent(share.own.difference / total.difference)
            sentence += f": {part} of the difference"
        sentences.append(f"{sentence}.")
    if not total.differs:
        sentences.append("The calls as a whole differ by less than the noise.")
    return sentences


def _itself(share: Share) -> str:
    name = share.frame.text.replace("`", "'")
    return f"`{name}` itself took"


def _seconds(value: float) -> str:
    return seconds(value, trim=True)
