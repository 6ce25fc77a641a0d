"""Curve styles that color-blind readers can tell apart, also in greyscale, and the color scale of heat maps."""

from __future__ import annotations

import numpy as np

# After Okabe and Ito, "Color Universal Design", darkened where a thin line on white would be too light.
COLORS = ("#0072b2", "#d55e00", "#008f68", "#c0609a", "#333333", "#a67c00", "#2f8fc7", "#7a5230")
DARK_COLORS = ("#4fa8e8", "#ff8c42", "#2fcf9f", "#f29ccb", "#e8e8e8", "#e3bd45", "#93d4ff", "#c7a486")
# Lengths of dashes and gaps: one pattern for each color, then those of reference curves.
DASHES = ((), (7, 3), (3, 2), (9, 3, 2, 3), (13, 4), (5, 2, 1, 2, 1, 2), (3, 3), (14, 3, 4, 3))
REFERENCE_DASHES = ((2, 4), (9, 4), (9, 3, 2, 3))
_SCALE = ((245, 249, 253), (188, 213, 236), (108, 165, 208), (38, 104, 168), (12, 44, 98))  # light to dark blue


CurveStyle = tuple[int, int]
"""A color and a dash: indices into `COLORS`, and into `DASHES` followed by `REFERENCE_DASHES`."""


def curve_style(number: int, *, reference: bool = False) -> CurveStyle:
    """The style of the n-th curve: the first eight differ in color and in dash, the first 64 in one of them.

    >>> curve_style(7), curve_style(8), curve_style(2, reference=True)
    ((7, 7), (0, 1), (2, 10))
    """
    color = number % len(COLORS)
    dash = (color + number // len(COLORS)) % len(DASHES)
    return color, len(DASHES) + number % len(REFERENCE_DASHES) if reference else dash


def heat_color(value: float, light: float, dark: float) -> str:
    """The color of a value on the scale from `light` to `dark`, whichever of them is the higher.

    >>> heat_color(0.0, 0.0, 1.0), heat_color(1.0, 0.0, 1.0)
    ('#f5f9fd', '#0c2c62')
    """
    share = (value - light) / (dark - light) if dark != light else 0.5
    stops = np.linspace(0, 1, len(_SCALE))
    channels = (np.interp(share, stops, channel) for channel in zip(*_SCALE, strict=True))
    return "#" + "".join(f"{round(float(channel)):02x}" for channel in channels)


def text_color(background: str) -> str:
    """Black or white, whichever has the higher contrast as WCAG 2 defines it.

    >>> text_color("#f5f9fd"), text_color("#0c2c62")
    ('#000000', '#ffffff')
    """
    # The contrasts (L + 0.05) / 0.05 to black and 1.05 / (L + 0.05) to white are equal at L = 0.179.
    return "#000000" if luminance(background) > 0.179 else "#ffffff"


def luminance(color: str) -> float:
    """The relative luminance of a color, from 0 to 1, as WCAG 2 defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
