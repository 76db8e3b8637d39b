"""Figures of machines: what joins their GPUs."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from harness.model.topology import Topology
from harness.topologies.gpu_kinds import GB
from harness.topologies.link_matrix import LinkMatrix
from reports.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    VERMILION,
    Drawing,
    finish,
    new_figure,
    style,
)
from reports.formatting import plural

_PCIE_COLOURS = {"PIX": BLUE, "PXB": BLUE, "PHB": ORANGE, "NODE": ORANGE, "SYS": VERMILION}
_MOST_DOMAINS, _MOST_HOSTS, _MOST_GPUS = 2, 4, 8


def matrix_drawing(name: str, matrix: LinkMatrix) -> Drawing:
    """Draw the GPUs of a host on a circle, with a line for each pair: the wider, the more links."""
    title = f"What joins the GPUs of {name}"
    count = len(matrix.gpus)
    places = [
        (math.sin(2 * math.pi * at / count), math.cos(2 * math.pi * at / count))
        for at in range(count)
    ]
    with style():
        figure, axes = new_figure(5.2)
        _empty(axes, title)
        seen: set[str] = set()
        most = max((matrix.nvlinks(a, b) for a in matrix.gpus for b in matrix.gpus), default=0)
        for a, first in enumerate(matrix.gpus):
            for b, second in enumerate(matrix.gpus[:a]):
                kind = matrix.link(first, second)
                links = matrix.nvlinks(first, second)
                colour = GREEN if links else _PCIE_COLOURS.get(kind, GREY)
                (x, y), (to_x, to_y) = places[b], places[a]
                axes.plot(
                    [x, to_x],
                    [y, to_y],
                    color=colour,
                    linewidth=0.8 + 2.4 * links / (most or 1),
                    linestyle="-" if links else ":",
                    zorder=1 + bool(links),
                    label=None if kind in seen else kind,
                )
                seen.add(kind)
        for gpu, (x, y) in zip(matrix.gpus, places, strict=True):
            axes.scatter([x], [y], s=700, color="white", edgecolor=GREY, zorder=3)
            axes.text(x, y, gpu.removeprefix("GPU"), ha="center", va="center", zorder=4)
        axes.set_xlim(-1.9, 1.9)
        axes.set_ylim(-1.25, 1.25)
        axes.set_aspect("equal")
        if seen:
            axes.legend(loc="center left", title="joined by")
        return finish(figure, f"links-{name}", title, "", pd.DataFrame())


def topology_drawing(found: Topology) -> Drawing:
    """Draw the domains of a topology as boxes of hosts and GPUs, with the bandwidths between."""
    title = f"{found.name}: {plural(found.gpus, 'GPU')}, {found.gpu or 'of a kind not named'}"
    size, hosts = found.gpus_in_domain, found.hosts_in_domain
    per_host = min(found.gpus_per_host, size)
    shown_domains = min(found.domains, _MOST_DOMAINS)
    shown_hosts, shown_gpus = min(hosts, _MOST_HOSTS), min(per_host, _MOST_GPUS)
    tall = shown_hosts + 1.6 + (hosts > shown_hosts)
    with style():
        figure, axes = new_figure(0.9 + 0.42 * tall * shown_domains + 0.35 * (shown_domains - 1))
        _empty(axes, title)
        for domain in range(shown_domains):
            top = -domain * (tall + 0.9)
            _box(axes, -0.3, top - tall, 10.6, tall, GREEN)
            inside = f"{found.intra_host_bw / GB:,.4g} GB/s one way" if size > 1 else "alone"
            axes.text(0, top - 0.55, f"domain {domain}: {size:,} GPUs, {inside}", color=GREEN)
            for host in range(shown_hosts):
                low = top - 1.8 - host
                axes.text(0, low + 0.3, f"host {domain * hosts + host}", va="center", fontsize=8)
                start = domain * size + host * per_host
                count = min(shown_gpus, size - host * per_host)
                for at in range(count):
                    _box(axes, 1.6 + 1.05 * at, low, 0.9, 0.6, GREY)
                    label = f"{start + at}"
                    axes.text(2.05 + 1.05 * at, low + 0.3, label, ha="center", va="center")
                if per_host > count:
                    axes.text(1.6 + 1.05 * count, low + 0.3, "…", va="center")
            if hosts > shown_hosts:
                axes.text(0, top - tall + 0.45, f"… {hosts - shown_hosts} more hosts", color=GREY)
            if domain:
                told = "bandwidth not told"
                if found.inter_host_bw:
                    told = f"{found.inter_host_bw / GB:,.4g} GB/s for each GPU"
                axes.plot([5, 5], [top, top + 0.9], color=ORANGE, linewidth=3)
                axes.text(5.3, top + 0.45, f"network, {told}", va="center", color=VERMILION)
        last = -(shown_domains - 1) * (tall + 0.9) - tall
        if (left := found.domains - shown_domains) > 0:
            axes.text(0, last - 0.55, f"… {plural(left, 'more domain')}", color=GREY)
            last -= 0.7
        axes.set_xlim(-0.5, 10.5)
        axes.set_ylim(last - 0.2, 0.2)
        return finish(figure, f"topology-{found.name}", title, "", pd.DataFrame())


def _empty(axes: Axes, title: str) -> None:
    axes.set_axis_off()
    axes.set_title(title, loc="left")


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    shape, inside = "round,pad=0,rounding_size=0.15", "none" if colour == GREEN else PALE
    patch = FancyBboxPatch((x, y), width, height, shape, fc=inside, ec=colour, linewidth=1.2)
    axes.add_patch(patch)
