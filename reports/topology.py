"""Figures of a host's links between GPUs, and of a topology's domains."""

import math
from itertools import combinations
from statistics import fmean

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from harness.model.topology import Topology
from harness.topologies.link_matrix import LinkMatrix, nvlinks_of
from harness.topologies.link_shape import linked_pairs, shape_of, usual_links
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREEN, GREY, ORANGE, PALE, VERMILION, Drawing
from reports.core.formatting import bandwidth, plural

_PCIE_COLOURS = {"PIX": BLUE, "PXB": BLUE, "PHB": ORANGE, "NODE": ORANGE, "SYS": VERMILION}
_MOST_DOMAINS, _MOST_HOSTS, _MOST_GPUS = 2, 4, 8
_FIRST_GPU, _STEP, _BOX = 1.6, 1.05, 0.9

# Height of the links below the hosts of a domain.
_LINKS_TALL: dict[str | None, float] = {"switch": 0.5, "PCIe": 0.5, "pairs": 0.8, "mesh": 0.8}

_Place = tuple[float, float]


def matrix_drawing(name: str, matrix: LinkMatrix, gpu_links: int | None = None) -> Drawing:
    """Draw a host's GPUs on a circle, and a line for each pair, wider with more NVLinks.

    NVLinks that lead to a switch are a line from each GPU to that switch. `gpu_links` is the number
    of NVLinks of a GPU, None if unknown.
    """
    title = f"What joins the GPUs of {name}"
    turn = 2 * math.pi / len(matrix.gpus)
    places = {gpu: (math.sin(turn * n), math.cos(turn * n)) for n, gpu in enumerate(matrix.gpus)}
    pairs = list(combinations(matrix.gpus, 2))
    most = max((matrix.nvlinks(*pair) for pair in pairs), default=0) or 1
    shape = shape_of(matrix, gpu_links)
    switched = [each for each in shape.islands if shape.by == "switch" and len(each) > 1]
    with canvas.style():
        figure, axes = _empty_figure(5.2, title)
        seen: set[str] = set()

        def line(start: _Place, end: _Place, kind: str) -> None:
            links = nvlinks_of(kind)
            axes.plot(
                *zip(start, end, strict=True),
                color=GREEN if links else _PCIE_COLOURS.get(kind, GREY),
                linewidth=0.8 + 2.4 * links / most,
                linestyle="-" if links else ":",
                zorder=1 + bool(links),
                label=None if kind in seen else kind,
            )
            seen.add(kind)

        for one, other in pairs:
            if not (switched and matrix.nvlinks(one, other)):
                line(places[one], places[other], matrix.link(one, other))
        for island in switched:
            x, y = (fmean(places[gpu][axis] for gpu in island) for axis in (0, 1))
            for gpu in island:
                line(places[gpu], (x, y), matrix.link(island[0], island[1]))
            frame = {"boxstyle": "round", "fc": "white", "ec": GREEN}
            axes.text(x, y, "switch", ha="center", va="center", zorder=4, bbox=frame)
        for gpu, (x, y) in places.items():
            axes.scatter([x], [y], s=700, color="white", edgecolor=GREY, zorder=3)
            axes.text(x, y, gpu.removeprefix("GPU"), ha="center", va="center", zorder=4)
        axes.set(xlim=(-1.9, 1.9), ylim=(-1.25, 1.25), aspect="equal")
        if seen:
            axes.legend(loc="center left", title="joined by")
        return canvas.finish(figure, f"links-{name}", title, "", pd.DataFrame())


def topology_drawing(found: Topology) -> Drawing:
    """Draw a topology's domains as boxes of hosts and GPUs, with bandwidths in and between them."""
    title = f"{found.name}: {plural(found.gpus, 'GPU')}, {found.gpu or 'of a kind not named'}"
    size, hosts = found.gpus_in_domain, found.hosts_in_domain
    domains = min(found.domains, _MOST_DOMAINS)
    links_tall = 0.0 if size == 1 else _LINKS_TALL.get(usual_links(found), 0.0)
    tall = min(hosts, _MOST_HOSTS) + 1.6 + (hosts > _MOST_HOSTS) + links_tall
    with canvas.style():
        figure, axes = _empty_figure(0.9 + 0.42 * tall * domains + 0.35 * (domains - 1), title)
        for domain in range(domains):
            top = -domain * (tall + 0.9)
            _box(axes, -0.3, top - tall, 10.6, tall, GREEN)
            inside = f"{bandwidth(found.intra_host_bw)} one way" if size > 1 else "alone"
            axes.text(0, top - 0.55, f"domain {domain}: {size:,} GPUs, {inside}", color=GREEN)
            for host in range(min(hosts, _MOST_HOSTS)):
                _draw_host(axes, found, domain, host, top - 1.8 - host)
            if links_tall:
                _draw_links(axes, found, top - 1.8 - min(hosts, _MOST_HOSTS) + 1)
            if hosts > _MOST_HOSTS:
                axes.text(0, top - tall + 0.45, f"… {hosts - _MOST_HOSTS} more hosts", color=GREY)
            if domain:
                speed = "bandwidth unknown"
                if found.inter_host_bw:
                    speed = f"{bandwidth(found.inter_host_bw)} for each GPU"
                axes.plot([5, 5], [top, top + 0.9], color=ORANGE, linewidth=3)
                axes.text(5.3, top + 0.45, f"network, {speed}", va="center", color=VERMILION)
        last = -(domains - 1) * (tall + 0.9) - tall
        if (left := found.domains - domains) > 0:
            axes.text(0, last - 0.55, f"… {plural(left, 'more domain')}", color=GREY)
            last -= 0.7
        axes.set(xlim=(-0.5, 10.5), ylim=(last - 0.2, 0.2))
        return canvas.finish(figure, f"topology-{found.name}", title, "", pd.DataFrame())


def _draw_host(axes: Axes, found: Topology, domain: int, host: int, low: float) -> None:
    size, per_host = found.gpus_in_domain, min(found.gpus_per_host, found.gpus_in_domain)
    label = f"host {domain * found.hosts_in_domain + host}"
    axes.text(0, low + 0.3, label, va="center", fontsize=8)
    first, count = host * per_host, min(per_host, _MOST_GPUS, size - host * per_host)
    for at in range(count):
        _box(axes, _FIRST_GPU + _STEP * at, low, _BOX, 0.6, GREY)
        gpu = f"{domain * size + first + at}"
        axes.text(_middle(at), low + 0.3, gpu, ha="center", va="center")
    if per_host > count:
        axes.text(_FIRST_GPU + _STEP * count, low + 0.3, "…", va="center")


def _draw_links(axes: Axes, found: Topology, low: float) -> None:
    """Draw the usual links below a domain's last host, which is at the height `low`."""
    by = usual_links(found)
    gpus = min(found.gpus_per_host, found.gpus_in_domain, _MOST_GPUS)
    if by in ("pairs", "mesh"):
        for one, other in linked_pairs(by, gpus):
            turns = [math.pi * n / 20 for n in range(21)]
            middle, half = (_middle(one) + _middle(other)) / 2, (other - one) * _STEP / 2
            deep = 0.2 * (other - one)
            arc = [middle - half * math.cos(turn) for turn in turns]
            axes.plot(arc, [low - deep * math.sin(turn) for turn in turns], color=GREEN, lw=0.9)
        return
    colour, name = (GREEN, "NVSwitch") if by == "switch" else (ORANGE, "PCIe")
    for host in range(min(found.hosts_in_domain, _MOST_HOSTS)):
        for gpu in range(gpus):
            x = _middle(gpu) + 0.12 * host  # a line of its own, behind the hosts below
            axes.plot([x, x], [low + host, low - 0.4], color=colour, linewidth=1.2, zorder=0)
    width = _STEP * (gpus - 1) + _BOX
    _box(axes, _FIRST_GPU, low - 0.9, width, 0.5, colour)
    axes.text(_FIRST_GPU + width / 2, low - 0.65, name, ha="center", va="center", color=colour)


def _middle(gpu: int) -> float:
    return _FIRST_GPU + _BOX / 2 + _STEP * gpu


def _empty_figure(height: float, title: str) -> tuple[Figure, Axes]:
    figure, axes = canvas.new_figure(height)
    axes.set_axis_off()
    axes.set_title(title, loc="left")
    return figure, axes


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    shape, inside = "round,pad=0,rounding_size=0.15", "none" if colour == GREEN else PALE
    patch = FancyBboxPatch((x, y), width, height, shape, fc=inside, ec=colour, linewidth=1.2)
    axes.add_patch(patch)
