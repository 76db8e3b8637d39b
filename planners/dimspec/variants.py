"""Variants: ColossalAI's search before #5446, as merged, as intended; ours; and real releases."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.contract import Claim, NotApplicable, Prepared, ask_upstream
from planners.dimspec import problem
from planners.dimspec.conversion.greedy import Dictionaries, GreedySearch
from planners.dimspec.conversion.interned import CheapestSearch, InternedSearch
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import Answers, Search, Stream

_PUBLISHED = "hpcaitech/ColossalAI#5446"
_ISSUE = "hpcaitech/ColossalAI#5436"
_CLAIM = Claim(
    56.79, 31.93, "s", "ColossalAI's example for ResNet, wall time of the strategy constructor"
)


@FAMILY.variant("eager-dict", source=f"before {_PUBLISHED}", reference=True)
def eager_dict(stream: Stream) -> Prepared[Answers]:
    """Build a dictionary of differences, with copied strings, in every DimSpec's constructor."""
    return _greedy(stream, "eager")


@FAMILY.variant("lazy-dict", source=_PUBLISHED, same_as="eager-dict", claim=_CLAIM)
def lazy_dict(stream: Stream) -> Prepared[Answers]:
    """Build the dictionary of every DimSpec on its first use: #5446 as merged."""
    return _greedy(stream, "lazy")


@FAMILY.variant("shared-dict", source=f"what {_ISSUE} asked for", same_as="eager-dict")
def shared_dict(stream: Stream) -> Prepared[Answers]:
    """Build one dictionary for the class: #5446 as intended."""
    return _greedy(stream, "shared")


@FAMILY.variant("path-cache", source="shardbench", same_as="eager-dict")
def path_cache(stream: Stream) -> Prepared[Answers]:
    """As shared-dict, and cache conversions by all inputs that determine them."""
    return _greedy(stream, "shared", caches_paths=True)


@FAMILY.variant("interned", source="shardbench", same_as="eager-dict")
def interned(stream: Stream) -> Prepared[Answers]:
    """Layouts are numbers, steps are looked up in tables, and specs and paths are reused."""
    return _answering(stream, InternedSearch)


@FAMILY.variant("optimal", source="Dijkstra 1959, over ColossalAI's costs of a step")
def optimal(stream: Stream) -> Prepared[Answers]:
    """Find the conversion with the least sum of step costs, by Dijkstra's algorithm."""
    return _answering(stream, CheapestSearch)


def _greedy(
    stream: Stream, dictionaries: Dictionaries, caches_paths: bool = False
) -> Prepared[Answers]:
    if any(len(query.mesh.shape) > 2 for query in stream.queries):
        raise NotApplicable(
            "ColossalAI's dictionary of differences has a KeyError for meshes of more than 2 axes; "
            "'interned' and 'optimal' take them."
        )
    return _answering(stream, lambda: GreedySearch(dictionaries, caches_paths))


def _answering(stream: Stream, search: Callable[[], Search]) -> Prepared[Answers]:
    """Return a call that answers a stream by a new search."""
    assert len(stream.pairs) == len(stream.queries)  # computed here, untimed
    return Prepared(run=lambda: problem.answer(stream, search()))


_BEFORE = "colossalai-0.4.0"
_AFTER = "colossalai-0.4.1"


@FAMILY.variant(_BEFORE, source="ColossalAI 0.4.0", same_as="eager-dict", upstream=_BEFORE)
def before(stream: Stream) -> Prepared[Answers]:
    """ColossalAI 0.4.0, the last release before hpcaitech/ColossalAI#5446."""
    return _asking(stream, _BEFORE)


@FAMILY.variant(
    _AFTER, source="ColossalAI 0.4.1", same_as="eager-dict", upstream=_AFTER, claim=_CLAIM
)
def after(stream: Stream) -> Prepared[Answers]:
    """ColossalAI 0.4.1, the first release with hpcaitech/ColossalAI#5446."""
    return _asking(stream, _AFTER)


@FAMILY.variant(f"{_AFTER}+interned", source="shardbench", same_as="eager-dict", upstream=_AFTER)
def after_interned(stream: Stream) -> Prepared[Answers]:
    """ColossalAI 0.4.1, with conversions from our search `interned`."""
    return _asking(stream, _AFTER, is_accelerated=True)


def _asking(stream: Stream, release: str, is_accelerated: bool = False) -> Prepared[Answers]:
    driver = Path(__file__).parent / "upstream" / "driver.py"
    return ask_upstream(stream, release, driver, {"is_accelerated": is_accelerated}, _translated)


def _translated(stream: Stream) -> tuple[Mapping[str, Any], Callable[[Any], Answers]]:
    """Return the request for a stream, and the reader of its answer."""
    queries = msgspec.to_builtins(stream.queries)
    request = {"kind": "stream", "queries": queries, "sequence": [*stream.sequence]}
    return request, lambda answer: msgspec.convert(answer, Answers)
