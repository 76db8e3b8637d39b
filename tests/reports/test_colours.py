"""Colours can be distinguished: by contrast, by colour-blind people, in print, in dark mode."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from made_up_results import family_lines, family_of, past_lines

import reports
from reports.core.drawing.canvas import BLACK, GREY, MARKERS, PALE, PALETTE
from reports.family.page import figures

STYLE = (Path(reports.__file__).parent / "core" / "templates" / "style.css").read_text()
# Viénot, Brettel and Mollon (1999) for linear RGB: who lacks the cones for long waves (protan), for
# middle ones (deutan); for short ones (tritan) the one-plane simplification of Brettel et al. 1997.
BLIND = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "tritan": [[1, 0.14461, -0.14461], [0, 0.85924, 0.14076], [0, 0.85924, 0.14076]],
}


def luminance(colour: str) -> float:
    """Return the relative luminance of an sRGB colour `#RRGGBB`, from 0 to 1 (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two sRGB colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def schemes():
    """Return the colour variables of the style sheet, by scheme (light and dark)."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    held = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(held) == 3
    return dict(zip(("light", "dark", "print"), held, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_can_be_read(scheme):
    held = schemes()[scheme]
    assert held.keys() == schemes()["light"].keys()
    for name in ("ink", "soft", "accent", "bad", "good"):
        for under in ("paper", "shade", "card"):
            assert contrast(held[name], held[under]) >= 4.5, f"{name} on {under}"
    assert contrast(held["figure-grey"], held["card"]) >= 4.5
    assert contrast(held["ink"], held["figure-pale"]) >= 4.5


def test_contrast_is_that_of_the_guidelines():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert luminance("#FF0000") == pytest.approx(0.2126)


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts])


def lab(rgb):
    """Return the CIE L*a*b* values (D65) of a linear RGB colour."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.array(to_xyz) @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = [math.copysign(abs(t) ** (1 / 3), t) if t > 0.008856 else 7.787 * t + 16 / 116
         for t in (x, y, z)]  # fmt: skip
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLIND)
def test_the_colour_blind_tell_the_palette_apart(kind):
    seen = {colour: lab(np.array(BLIND[kind]) @ linear(colour)) for colour in PALETTE}
    for (one, a), (other, b) in itertools.combinations(seen.items(), 2):
        assert np.linalg.norm(a - b) > 8, f"{one} and {other} look alike"


def test_markers_tell_apart_what_colours_do_not():
    assert math.gcd(len(MARKERS), len(PALETTE)) == 1


def test_figures_turn_dark_with_the_page_and_their_files_do_not(tmp_path):
    family = family_of(tmp_path, [*family_lines(), *past_lines()])
    names = set(schemes()["light"])
    for drawing in (each for some in figures(family).values() for each in some):
        assert "var(" not in drawing.svg
        used = set(re.findall(r"var\(--([\w-]+), #", drawing.inline))
        assert {"card", "figure-grey"} <= used <= names
        for neutral in (BLACK, "#ffffff", "#333333", GREY, PALE):
            assert not re.search(rf"(fill|stroke): {neutral}", drawing.inline, re.IGNORECASE)
