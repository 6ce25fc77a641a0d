"""Colors that color-blind readers can tell apart, with dashes for greyscale; the page's dark colors are in its CSS."""

from __future__ import annotations

# After Okabe and Ito, darkened where a thin line on white would be too light.
CURVES = ("#0072b2", "#d55e00", "#008f68", "#c0609a", "#333333", "#a67c00", "#2f8fc7", "#7a5230")
DASHES = ((), (7, 3), (3, 2), (9, 3, 2, 3), (13, 4), (5, 2, 1, 2, 1, 2), (3, 3), (14, 3, 4, 3))
_RAMP = ((245, 249, 253), (188, 213, 236), (108, 165, 208), (38, 104, 168), (12, 44, 98))  # light to dark blue


def look(number: int) -> tuple[int, int]:
    """Which color and which dash a curve's number means, as in the page's script: the first eight differ in both, the
    first 64 in one of them.

    >>> look(0), look(7), look(8)
    ((0, 0), (7, 7), (0, 1))
    """
    color = number % len(CURVES)
    return color, (color + number // len(CURVES)) % len(DASHES)


def number_of(color: int, dash: int) -> int:
    """The number that means this color and this dash.

    >>> look(number_of(3, 1))
    (3, 1)
    """
    return color + len(CURVES) * ((dash - color) % len(DASHES))


def heat_color(value: float, low: float, high: float) -> str:
    """The color of a value on the scale from `low` to `high`: the higher the darker.

    >>> heat_color(0.0, 0.0, 1.0), heat_color(1.0, 0.0, 1.0)
    ('#f5f9fd', '#0c2c62')
    """
    share = (value - low) / (high - low) if high > low else 0.5
    place = min(1.0, max(0.0, share)) * (len(_RAMP) - 1)
    first = min(int(place), len(_RAMP) - 2)
    mixed = (a + (b - a) * (place - first) for a, b in zip(_RAMP[first], _RAMP[first + 1], strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def text_color(background: str) -> str:
    """Black or white, whichever has the higher contrast.

    >>> text_color("#f5f9fd"), text_color("#0c2c62")
    ('#000000', '#ffffff')
    """
    return "#000000" if contrast("#000000", background) >= contrast("#ffffff", background) else "#ffffff"


def contrast(one: str, other: str) -> float:
    """The contrast of two colors as WCAG defines it, from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
