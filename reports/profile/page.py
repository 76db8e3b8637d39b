"""The page of a profile: flame graphs of one variant or two, their difference, and sentences."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import DecodeError, Struct, json, to_builtins

from harness.measuring.profile.flame_graph import (
    Comparer,
    Frame,
    Node,
    PairedSeconds,
    Profile,
    Share,
)
from harness.model.errors import UsageError
from reports.core.formatting import percent, plural, seconds
from reports.core.templating import render

MOST_FRAMES = 5
# A frame's total time is shown only if it is more than this many times the frame's own time.
_MUCH_MORE = 1.1
# A larger share of the CPU time in other threads and processes makes a profile say little.
_MUCH_UNSEEN = 0.1
# Two variants that the profiler slows down differently by more than this are hard to compare.
_MUCH_SLOWER = 1.25
_DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)


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
    slowed = [
        profile.overhead
        for profile in profiles
        if profile.unseen <= _MUCH_UNSEEN and profile.overhead > 0
    ]
    most, least = max(slowed, default=1.0), min(slowed, default=1.0)
    if most > _MUCH_SLOWER * least:
        sentences.append(
            f"Profiling slowed one variant {most / least:.1f} times as much as the other, so "
            "shares of their difference are distorted: many short calls look longer than they are."
        )
    return sentences


def explanation(profiles: Sequence[Profile]) -> list[str]:
    """Return a sentence for each of up to five frames that explain most.

    One profile: frames with most of the time. Two: frames with most of the difference between
    them. All times are measured under the profiler.
    """
    return _of_one(*profiles) if len(profiles) == 1 else _of_two(*profiles)


def _of_one(profile: Profile) -> list[str]:
    comparer = Comparer(profile, profile)
    total = comparer.total().seconds
    sentences = []
    for share in comparer.shares()[:MOST_FRAMES]:
        if not share.own.seconds > 0:
            break
        whole = ""
        if share.whole.seconds > _MUCH_MORE * share.own.seconds:
            part = percent(share.whole.seconds / total)
            whole = f" With all that it calls it took {_seconds(share.whole.seconds)}, {part}."
        sentences.append(
            f"`{_name(share.frame)}` itself took {_of(share.own.seconds, total)} per call: "
            f"{percent(share.own.seconds / total)}.{whole}"
        )
    return sentences


def _of_two(profile: Profile, against: Profile) -> list[str]:
    unseen = [side.variant for side in (profile, against) if side.unseen > _MUCH_UNSEEN]
    if unseen:
        return [
            f"No frames are compared: {' and '.join(unseen)} "
            f"{'works' if len(unseen) == 1 else 'work'} in other threads or processes, "
            "which are not profiled."
        ]
    comparer = Comparer(profile, against)
    total = comparer.total()
    distinct = [share for share in comparer.shares() if share.own.stands_out][:MOST_FRAMES]
    if not distinct:
        return [
            f"No frame stands out from the noise between {profile.variant} and {against.variant}."
        ]
    sentences = [_difference(share, total, profile.variant, against.variant) for share in distinct]
    if not total.differs:
        return [*sentences, "The calls as a whole differ by less than the noise."]
    explained = math.fsum(share.own.difference for share in distinct) / total.difference
    if len(distinct) > 1:
        sentences.append(f"Together that is {percent(explained)} of the difference.")
    return sentences


def _difference(share: Share, total: PairedSeconds, variant: str, against: str) -> str:
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


def flame_page(profiles: Sequence[Profile], problem: str) -> str:
    """Return the page of one variant's profile, or of two and their difference.

    The page is one HTML file that loads nothing from the network.
    """
    first, last = profiles[0], profiles[-1]
    title = " against ".join(
        [f"{first.family}/{first.variant}", *(profile.variant for profile in profiles[1:])]
    )
    return render(
        "flames.html.j2",
        generator="shardbench profile",
        title=title,
        problem=problem,
        profiles=profiles,
        overview=overview(profiles),
        explanation=explanation(profiles),
        data=to_builtins(_data(Comparer(first, last), [profile.variant for profile in profiles])),
        measure=f"shardbench compare '{first.family}/{first.variant}@{problem}'"
        + (f" --against {last.variant}" if len(profiles) > 1 else ""),
    )


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


def read_data(page: str, name: str) -> FlameData:
    """Return the data of a page of flame graphs; raise UsageError for any other text."""
    found = _DATA.search(page)
    try:
        return json.decode(found[1] if found else "", type=FlameData)
    except DecodeError:
        raise UsageError(f"{name} is no page of flame graphs.") from None


def _data(comparer: Comparer, variants: Sequence[str]) -> FlameData:
    nodes = comparer.tree()
    frames = {frame: number for number, frame in enumerate({node.frame: 0 for node in nodes})}
    return FlameData(
        tuple(variants),
        tuple((frame.module, frame.text) for frame in frames),
        tuple(
            FlameNode(frames[node.frame], node.parent, *_figures(node), int(node.whole.differs))
            for node in nodes
        ),
    )


def _figures(node: Node) -> tuple[float, float, float, float, float]:
    own, whole = node.own, node.whole
    return (
        _rounded(own.seconds),
        _rounded(own.against),
        _rounded(whole.seconds),
        _rounded(whole.against),
        _rounded(node.width),
    )


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")
