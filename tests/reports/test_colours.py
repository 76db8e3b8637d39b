"""Colours can be distinguished: by contrast, by colour-blind people, in dark mode."""

import itertools
import math
import re

import numpy as np
import pytest

from reports.core.canvas import MARKERS, PALETTE
from reports.core.page import TEMPLATES

# Viénot, Brettel and Mollon (1999) for linear RGB: who lacks the cones for long waves (protan), for
# middle ones (deutan); for short ones (tritan) the one-plane simplification of Brettel et al. 1997.
BLIND = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "tritan": [[1, 0.14461, -0.14461], [0, 0.85924, 0.14076], [0, 0.85924, 0.14076]],
}


def linear(colour):
    """Return the linear RGB values of an sRGB colour `#RRGGBB`."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts])


def contrast(one, other):
    """Return the contrast of two sRGB colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    """Return the CIE L*a*b* values (D65) of a linear RGB colour."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.array(to_xyz) @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = [math.copysign(abs(t) ** (1 / 3), t) if t > 0.008856 else 7.787 * t + 16 / 116
         for t in (x, y, z)]  # fmt: skip
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(scheme):
    """Texts of pages, and names in the frames of a flame graph, contrast with what is below."""
    page, flames = ((TEMPLATES / name).read_text() for name in ("page.css", "flames.css"))
    block = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for name in ("ink", "soft", "accent", "bad", "good"):
        for under in ("paper", "shade"):
            assert contrast(colours[name], colours[under]) >= 4.5, f"{name} on {under}"
    frames = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", flames)
    assert len(frames) == 8
    for name, *under in frames:
        assert contrast(colours["ink"], under[scheme]) >= 4.5, name


@pytest.mark.parametrize("kind", BLIND)
def test_the_colour_blind_tell_the_palette_apart(kind):
    """Any two colours of the palette differ, and markers tell apart what colours do not."""
    seen = {colour: lab(np.array(BLIND[kind]) @ linear(colour)) for colour in PALETTE}
    for (one, a), (other, b) in itertools.combinations(seen.items(), 2):
        assert np.linalg.norm(a - b) > 8, f"{one} and {other} look alike"
    assert math.gcd(len(MARKERS), len(PALETTE)) == 1
