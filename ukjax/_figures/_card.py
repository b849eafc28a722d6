"""What a notebook shows of an object: facts and tables beside a picture, as HTML that takes its colours from the page."""

import base64
import html
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from .._misc._errors import MissingExtraError

_CELL = "text-align:left;vertical-align:top;padding:.1em .8em .1em 0"
SHOWN = 12
"""So many rows of a table, and names in a cell, are shown; of more it says how many."""


class Card:
    """Facts and tables, added one after the other.

    **Arguments:**

    - `title`: the first line.
    """

    def __init__(self, title: str):
        self.title = title
        self.facts: dict[str, str] = {}
        self.parts: list[str] = []
        self.picture = ""

    def add_facts(self, **facts: Any) -> None:
        """Adds lines of a name, its `_` written as a space, and a value; those without a value are left out."""
        for name, value in facts.items():
            if value is not None and value != "":
                self.facts[name.replace("_", " ")] = value if isinstance(value, str) else f"{value:.6g}"

    def add_line(self, text: str) -> None:
        """Adds a line of text."""
        self.parts.append(f"<div>{html.escape(text)}</div>")

    def add_table(self, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Adds a table under a line that names its columns."""
        self.parts.append(_table(rows, head))

    def attempt(self, what: str, add: Callable[[], None]) -> None:
        """Lets a function add what can be told; where it cannot, the card says why.

        These are all that fail: `InputError`, which a user's function that fails becomes too, is a `ValueError`, as what
        NumPy, SciPy and Matplotlib say of numbers that are not finite; and Matplotlib may be missing.
        """
        try:
            add()
        except (ValueError, MissingExtraError) as error:
            self.add_line(f"No {what}: {' '.join(str(error).split())}")

    def add_picture(self, png: bytes) -> None:
        """Puts a picture beside all else."""
        data = base64.b64encode(png).decode()
        alt = html.escape(f"picture of {self.title}")
        self.picture = (
            f'<img alt="{alt}" src="data:image/png;base64,{data}" style="width:22em;max-width:100%">'
        )

    def to_html(self) -> str:
        """The card."""
        facts = _table(self.facts.items()) if self.facts else ""
        text = f"<b>{html.escape(self.title)}</b>{facts}{''.join(self.parts)}"
        beside = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start"
        return (
            f'<div style="{beside}"><div style="flex:1 1 22em;min-width:0">{text}</div>{self.picture}</div>'
        )


def _table(rows: Iterable[Iterable[str]], head: Iterable[str] = ()) -> str:
    def row(cells: Iterable[str], tag: str) -> str:
        styles = itertools.chain([f"{_CELL};white-space:nowrap"], itertools.repeat(_CELL))
        texts = (
            f'<{tag} style="{style}">{html.escape(x)}</{tag}>'
            for x, style in zip(cells, styles, strict=False)
        )
        return f"<tr>{''.join(texts)}</tr>"

    top = f"<thead>{row(head, 'th')}</thead>" if head else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f'<table style="margin:.4em 0">{top}<tbody>{body}</tbody></table>'


def list_names(names: Iterable[str]) -> str:
    """How many there are, and the first of them by name; nothing for none."""
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)}: {', '.join(names[:SHOWN])}{more}" if names else ""
