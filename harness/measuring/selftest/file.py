"""Store the results of self-tests in a file, so that days and machines can be compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from harness.measuring.environment import environment
from harness.measuring.selftest.rounds import tallies
from harness.model.cell import Cell, Way
from harness.model.declared import Amount, Count
from harness.store.keys import Key
from harness.store.lines import Entry, Store

SELFTESTS = Path("results/selftests.jsonl")


class SelfTest(Struct, frozen=True):
    """The results of one self-test, on one machine and for calls of one length.

    `differing` counts the rounds in which the identical variant was judged faster or slower, and
    `undecided` those in which it was inconclusive. `found` counts, by the per cent of added work,
    the rounds in which that variant was judged slower. `reach` is half the interval's width over
    the ratio; `pair_spread` and `process_spread` are standard deviations of the ratio's logarithm
    (see `Ratio`). These three are medians for the identical variant.
    """

    machine: str
    started: str
    load: float
    call_seconds: Annotated[float, Meta(gt=0)]
    way: Way
    rounds: Annotated[int, Meta(gt=0)]
    round_seconds: Amount
    differing: Count
    undecided: Count
    found: dict[int, Count]
    reach: float
    pair_spread: Amount
    process_spread: Amount

    def sentence(self) -> str:
        """Return a sentence with the hits for added work nearest to 5 %, and the false alarms."""
        day, length = self.started[:10], f"{1000 * self.call_seconds:g} ms"
        nearest = sorted(self.found.items(), key=lambda item: abs(item[0] - 5))[:1]
        slower = [
            f"{percent} % more work was found {times} times of {self.rounds}"
            for percent, times in nearest
        ]
        identical = (
            f"identical variants were called different {self.differing} times of {self.rounds}"
        )
        found = ", ".join([*slower, identical])
        return f"Self-test of {day} on this machine, calls of {length}: {found}."


def self_test(
    rounds: Sequence[Sequence[Cell]], call_seconds: float, round_seconds: float
) -> SelfTest:
    """Summarise the cells of all rounds of a self-test."""
    identical, *slower = tallies([list(cells) for cells in rounds])
    where = environment(0)
    ways = [cell.ratio.way for cells in rounds for cell in cells if cell.ratio]
    return SelfTest(
        machine=where.machine or "",
        started=where.started or "",
        load=where.load or 0.0,
        call_seconds=call_seconds,
        way=max(set(ways), key=ways.count),
        rounds=identical.rounds,
        round_seconds=round_seconds,
        differing=identical.differs,
        undecided=identical.verdicts.get("inconclusive", 0),
        found={tally.percent: tally.found for tally in slower},
        reach=identical.reach,
        pair_spread=identical.pair_spread,
        process_spread=identical.process_spread,
    )


def note_selftest(found: SelfTest, path: Path = SELFTESTS) -> None:
    """Append a self-test's results to a file; raise ShardbenchError if it cannot be written."""
    key = Key(machine=found.machine)
    _stored(path).add(Entry(f"{found.call_seconds:g} s", str(key), found))


def last_selftests(machine: str, path: Path = SELFTESTS) -> list[SelfTest]:
    """Return a machine's last self-test for each call length, shortest first; skip other lines."""
    found = {
        test.call_seconds: test
        for test in (entry.value for entry in _stored(path).entries)
        if test.machine == machine
    }
    return [found[length] for length in sorted(found)]


def _stored(path: Path) -> Store[SelfTest]:
    return Store(path, "selftest", SelfTest, old_kind=True)
