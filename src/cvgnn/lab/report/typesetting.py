"""Names and mathematics as a reader expects them: words for options, symbols, subscripts and superscripts.

A typeset text is plain text with Unicode symbols in which `_{...}` is lowered and `^{...}` is raised. The page's script
(assets/dom.js), the templates and matplotlib show these two in their own ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

_OPTION_NAMES = {
    "lr": "learning rate",
    "num_neighbors": "neighbors",
    "hidden": "hidden units",
    "beta1": "β₁",
    "beta2": "β₂",
    "nu_min": "smallest ν",
    "jk": "jumping knowledge",
    "form": "form of the optimizer",
    "scheme": "sampling scheme",
    "init": "initial weights",
}
_SYMBOLS = {
    "alpha": "α", "beta": "β", "eta": "η", "nu": "ν", "rho": "ρ", "sigma": "σ", "tau": "τ", "inf": "∞",
    "||": "‖", "<=": "≤", ">=": "≥", "grad F": "∇F", "Hbar": "H\u0304", "W~": "W\u0303",
}  # fmt: skip


def _symbol(text: str) -> str:
    return _SYMBOLS.get(text, text).replace("-", "−")


def _number(found: re.Match[str]) -> str:
    mantissa, exponent = found[1], int(found[2])
    return ("" if mantissa == "1" else f"{mantissa} × ") + f"10^{{{_symbol(str(exponent))}}}"


_RULES: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r"\|\||<=|>=|\bgrad F\b|\bHbar\b|\bW~", lambda found: _symbol(found[0])),
    (r"\bP\^(?![\w({-])", lambda _: "P\u0302"),
    (r"\^(\([^()]{1,9}\)|-?\d+(?:[./]\d+)?)", lambda found: f"^{{{_symbol(found[1])}}}"),
    (r"\b([A-Z]|nu|beta)_([A-Za-z0-9]+)\b", lambda found: f"{_symbol(found[1])}_{{{_symbol(found[2])}}}"),
    (r"\b(alpha|beta|eta|nu|rho|sigma|tau)\b", lambda found: _symbol(found[0])),
    (r"\bsqrt\((\w+)\)", lambda found: f"√{found[1]}"),
    (r"<(∇F[^<>]{1,40})>", lambda found: f"⟨{found[1]}⟩"),
    (r"(?<=[\])}‖]) - (?=[∇A-Z(])|(?<=\b[A-Z]) - (?=∇|[A-Z]\b)|(?<=\u0302) - (?=P)", lambda _: " − "),
    (r"\b(\d(?:\.\d+)?)e([+-]\d{2,3})\b", _number),
    (r"(?<![\w)\]{-])-(?=\d)", lambda _: "−"),
]
_RULES_COMPILED = [(re.compile(pattern), change) for pattern, change in _RULES]
_SHIFTED = re.compile(r"([_^])\{([^{}]*)\}")


def option_name(name: str) -> str:
    """The name of a training option in words.

    >>> option_name("lr"), option_name("batch_size")
    ('learning rate', 'batch size')
    """
    return _OPTION_NAMES.get(name, name.replace("_", " "))


def typeset(text: str) -> str:
    """A text with the notation of the diagnoses, typeset; a typeset text stays as it is.

    >>> typeset("E||grad F(W_tau)||^2 falls like T^-1/2"), typeset("4.00e-04")
    ('E‖∇F(W_{τ})‖^{2} falls like T^{−1/2}', '4.00 × 10^{−4}')
    """
    for pattern, change in _RULES_COMPILED:
        text = pattern.sub(change, text)
    return text


def as_html(text: object) -> Markup:
    """The text, typeset, as HTML: everything is escaped but the tags of subscripts and superscripts.

    >>> as_html("W_t <b>")
    Markup('W<sub>t</sub> &lt;b&gt;')
    """
    tags = {"_": "sub", "^": "sup"}
    return Markup(_SHIFTED.sub(lambda f: f"<{tags[f[1]]}>{f[2]}</{tags[f[1]]}>", str(escape(typeset(str(text))))))


def as_mathtext(text: str) -> tuple[str, bool]:
    r"""A typeset text for matplotlib, and whether it has formulas; without any, it is to be drawn as it is.

    >>> as_mathtext("W_{t}: $5"), as_mathtext("$5")
    (('W$_{\\mathrm{t}}$: \\$5', True), ('$5', False))
    """
    if not _SHIFTED.search(text):
        return text, False
    # In a formula, letters, digits and a few signs need no escape; all else in one is left in the line.
    plain = re.compile(r"[\w()−/.+∞ ]*")
    text = text.replace("\\", "\\\\").replace("$", r"\$")

    def shift(found: re.Match[str]) -> str:
        inner = found[2].replace(" ", r"\ ")
        return f"${found[1]}{{\\mathrm{{{inner}}}}}$" if plain.fullmatch(found[2]) and "_" not in inner else found[2]

    return _SHIFTED.sub(shift, text), True
