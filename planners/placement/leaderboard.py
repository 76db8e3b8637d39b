"""The best known results on the problems of the IOPDDL contest (ASPLOS/EuroSys 2025)."""

from string import ascii_uppercase
from typing import NamedTuple


class Known(NamedTuple):
    """The lowest cost of the 20 teams and XLA, and the seconds that they had on eight cores."""

    cost: int
    seconds: int


# Of the problems A to Y, by the limit of the contest, five letters each.
_COSTS = {
    60: (6_548_641_531, 532_843, 84_102_445_260, 313_613_524_736, 338_965_335_230),
    120: (364_364_563_561, 217_039, 527_715_404_257, 583_706_456_444, 1_360_981_630_371),
    180: (2_274_276_676, 1_970_993_742, 49_928_460_991, 202_739_586_553, 222_880_199_765),
    240: (651_833_115_436, 526_776_842_042, 371_899_551_572, 1_534_613_444, 682_895_254_913),
    300: (2_569_342_178, 1_632_051, 11_818_845_467_155, 280_461_191_177, 621_176_568_278),
}
_KNOWN = [Known(cost, seconds) for seconds, costs in _COSTS.items() for cost in costs]
_BY_NAME = {
    f"asplos-2025-iopddl-{letter}": known
    for letter, known in zip(ascii_uppercase, _KNOWN, strict=False)
}


def best_known(name: str) -> Known | None:
    """Return the best known result of a contest's problem, None for other problems."""
    return _BY_NAME.get(name)
