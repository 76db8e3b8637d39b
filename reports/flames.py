"""The page of a profile: flame graphs of one variant or two, their difference, and sentences."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import DecodeError, Struct, json, to_builtins

from harness.measuring.profile.flame_graph import Comparer, Frame, PairedSeconds, Profile, Share
from harness.model.errors import UsageError
from reports.core.formatting import percent, plural, seconds
from reports.core.page import render

MOST_FRAMES = 5
# A frame's total time is shown only if it is more than this many times the frame's own time.
_MUCH_MORE = 1.1
# A larger share of the CPU time in other threads and processes makes a profile say little.
_MUCH_UNSEEN = 0.1
# Two variants that the profiler slows down differently by more than this are hard to compare.
_MUCH_SLOWER = 1.25
_DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


class FlameNode(NamedTuple):
    """A node of a page's tree of calls, after its caller; all seconds are of one call.

    `frame` and `parent` are places in the page's frames and nodes. Each pair of seconds is of the
    first variant and of the last. `width` is in seconds too, and `differs` is 1 if the totals do.
    """

    frame: int
    parent: int
    own: float
    own_against: float
    total: float
    total_against: float
    width: float
    differs: int


class FlameData(Struct, frozen=True):
    """The data of a page: variants, frames by module and text, and the tree from its root."""

    variants: tuple[str, ...]
    frames: tuple[tuple[str, str], ...]
    nodes: tuple[FlameNode, ...]


def flame_page(profiles: Sequence[Profile], problem: str) -> str:
    """Return the page of one variant's profile, or of two and their difference.

    The page is one HTML file that loads nothing from the network.
    """
    first, last = profiles[0], profiles[-1]
    variants = [profile.variant for profile in profiles]
    nodes = Comparer(first, last).tree()
    places = {frame: place for place, frame in enumerate(dict.fromkeys(n.frame for n in nodes))}
    data = FlameData(
        tuple(variants),
        tuple((frame.module, frame.text) for frame in places),
        tuple(
            FlameNode(
                places[node.frame],
                node.parent,
                _rounded(node.own.seconds),
                _rounded(node.own.against),
                _rounded(node.whole.seconds),
                _rounded(node.whole.against),
                _rounded(node.width),
                int(node.whole.differs),
            )
            for node in nodes
        ),
    )
    against = f" --against {last.variant}" if len(profiles) > 1 else ""
    return render(
        "flames.html.j2",
        generator="shardbench profile",
        title=" against ".join([f"{first.family}/{first.variant}", *variants[1:]]),
        problem=problem,
        variants=variants,
        overview=overview(profiles),
        explanation=explanation(profiles),
        data=to_builtins(data),
        measure=f"shardbench compare '{first.family}/{first.variant}@{problem}'{against}",
    )


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def read_data(page: str, name: str) -> FlameData:
    """Return the data of a page of flame graphs; raise UsageError for any other text."""
    found = _DATA.search(page)
    try:
        return json.decode(found[1] if found else "", type=FlameData)
    except DecodeError:
        raise UsageError(f"{name} is no page of flame graphs.") from None


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
    """Return a sentence for each of up to five frames that explain most.

    One profile: frames with most of the time. Two: frames with most of the difference between
    them. All times are measured under the profiler.
    """
    first, last = profiles[0], profiles[-1]
    comparer = Comparer(first, last)
    total, shares = comparer.total(), comparer.shares()
    if len(profiles) == 1:
        return [
            _of_one(share, total.seconds) for share in shares[:MOST_FRAMES] if share.own.seconds
        ]
    unseen = [side.variant for side in profiles if side.unseen > _MUCH_UNSEEN]
    if unseen:
        return [
            f"No frames are compared: {' and '.join(unseen)} "
            f"{'works' if len(unseen) == 1 else 'work'} in other threads or processes, "
            "which are not profiled."
        ]
    distinct = [share for share in shares if share.own.stands_out][:MOST_FRAMES]
    if not distinct:
        return [f"No frame stands out from the noise between {first.variant} and {last.variant}."]
    sentences = [_of_two(share, total, first.variant, last.variant) for share in distinct]
    if not total.differs:
        sentences.append("The calls as a whole differ by less than the noise.")
    elif len(distinct) > 1:
        explained = math.fsum(share.own.difference for share in distinct) / total.difference
        sentences.append(f"Together that is {percent(explained)} of the difference.")
    return sentences


def _of_one(share: Share, total: float) -> str:
    own, whole = share.own.seconds, share.whole.seconds
    sentence = (
        f"`{_name(share.frame)}` itself took {_of(own, total)} per call: {percent(own / total)}."
    )
    if whole > _MUCH_MORE * own:
        sentence += f" With all that it calls it took {_seconds(whole)}, {percent(whole / total)}."
    return sentence


def _of_two(share: Share, total: PairedSeconds, variant: str, against: str) -> str:
    own, whole = share.own, share.whole
    sentence = (
        f"`{_name(share.frame)}` itself took {_of(own.seconds, total.seconds)} per call in "
        f"{variant} and {_of(own.against, total.against)} in {against}: "
    )
    if not total.differs:
        more = "more" if own.difference > 0 else "less"
        sentence += f"{_seconds(abs(own.difference))} {more}."
    elif (own.difference > 0) == (total.difference > 0):
        sentence += f"{percent(own.difference / total.difference)} of the difference."
    else:
        sentence += f"{_seconds(abs(own.difference))} the other way."
    if max(whole.seconds, whole.against) > _MUCH_MORE * max(own.seconds, own.against):
        sentence += f" With all that it calls it took {_of(whole.seconds)} and {_of(whole.against)}"
        if total.differs and whole.difference / total.difference > 0:
            sentence += f", {percent(whole.difference / total.difference)}"
        sentence += "."
    return sentence


def _of(part: float, total: float | None = None) -> str:
    if not part > 0:
        return "none"
    return _seconds(part) + (f" of {_seconds(total)}" if total is not None else "")


def _seconds(value: float) -> str:
    return seconds(value, trim=True)


def _name(frame: Frame) -> str:
    return frame.text.replace("`", "'")
