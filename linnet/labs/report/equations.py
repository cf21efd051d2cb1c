"""Equations of the documentation: a ```math block of LaTeX becomes MathML when the site is built.

GitHub typesets the same block by itself; on the site no script runs and nothing is requested. mkdocs.yml names `fence`
as the formatter of such blocks. A command that the converter does not know is an error, not a word in the equation.
"""

from __future__ import annotations

import re
from typing import Any

UNKNOWN = re.compile(r"<mi>(\\\w*|&)</mi>")  # what latex2mathml makes of commands and environments it does not know


def fence(source: str, language: str, class_name: str, options: Any, md: Any, **kwargs: Any) -> str:
    """Return the HTML of a block, in the signature of pymdownx.superfences."""
    from pymdownx.superfences import SuperFencesException

    try:
        return f'<div class="math">{mathml(source)}</div>'
    except ValueError as error:  # of other exceptions superfences would make a block of code
        raise SuperFencesException(str(error)) from None


def mathml(latex: str) -> str:
    """Return LaTeX as a displayed MathML equation."""
    from latex2mathml.converter import convert

    typeset = str(convert(" ".join(latex.split()), display="block"))
    if unknown := UNKNOWN.search(typeset):
        raise ValueError(
            f"{unknown[1]} in the equation {latex.strip()!r} cannot be typeset; align* and most commands can"
        )
    return typeset
