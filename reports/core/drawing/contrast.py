"""The contrast of colours, and which text can be read on which."""

from reports.core.drawing.canvas import BLACK, PALE

# Black and white that dark mode leaves alone, as it leaves the colour below them.
_WHITE_ON_COLOUR, _BLACK_ON_COLOUR = "#FEFEFE", "#010101"


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour `#RRGGBB`, from 0 to 1 (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two sRGB colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def text_colour_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour, in both modes."""
    if colour in (BLACK, PALE):  # dark mode inverts these, and must invert the text on them
        return "#FFFFFF" if colour == BLACK else "#000000"
    return max(_WHITE_ON_COLOUR, _BLACK_ON_COLOUR, key=lambda text: contrast(text, colour))
