"""Pictures of the links between GPUs, in text: a switch, links of pairs, or PCIe."""

import re
from collections.abc import Collection, Sequence

ROOM = 74


def boxes(gpus: Sequence[str], room: int = ROOM) -> str:
    """Draw GPUs as `[0] [1]` in `room` columns; those before the last one may be left out."""
    shown = [f"[{gpu}]" for gpu in gpus]
    most = max(3, room // (len(shown[-1]) + 1))
    if len(shown) > most:
        shown[most - 2 : -1] = ["…"]
    return " ".join(shown)


def switch(row: str, name: str) -> str:
    """Draw a switch below a row of GPUs, and the link of each GPU to it."""
    at = _middles(row)
    width = max(at[-1], at[0] + len(name) + 1) - at[0] + 1
    top = "".join("┴" if place in at else "─" for place in range(at[0], at[0] + width))
    edge = " " * (at[0] - 1)
    lines = (f"┌{top}┐", f"│{name.center(width)}│", f"└{'─' * width}┘")
    return "\n".join((_down(at), *(edge + line for line in lines)))


def pcie(row: str) -> str:
    """Draw PCIe below a row of GPUs, and the link of each GPU to it."""
    at = _middles(row)
    bus = "".join("╧" if place in at else "═" for place in range(at[-1] + 2))
    return f"{_down(at)}\n{bus} PCIe"


def pairs(row: str, linked: Collection[tuple[int, int]]) -> str:
    """Draw a line from each GPU in a row, with a dot below each later GPU that it is linked to."""
    at = _middles(row)
    lines = []
    for one, start in enumerate(at):
        dots = [place for other, place in enumerate(at) if (one, other) in linked]
        if dots:
            line = ("●" if place in dots else "─" for place in range(start + 1, dots[-1] + 1))
            lines.append(" " * start + "╰" + "".join(line))
    return "\n".join(lines)


def _down(at: Sequence[int]) -> str:
    return "".join("│" if place in at else " " for place in range(at[-1] + 1))


def _middles(row: str) -> list[int]:
    return [(box.start() + box.end() - 1) // 2 for box in re.finditer(r"\[[^]]*\]", row)]
