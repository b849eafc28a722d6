"""Tables in Markdown, as the scripts print them and as README.md shows them, and how the two are compared.

A line is as long as its figures are, whatever the width of the terminal, so that none is cut off. The first columns name
the row and are aligned to the left, figures to the right. A table is known by its header.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_ROUNDING = 1e-12
"""Figures below this are rounding, which differs between machines and versions."""
_NEAR = 0.05
"""Figures as near as this are the same: steps and errors change a little where rounding does."""
_MEASURED = ("CPU", "wall", "time of", "ms")
"""Words in the titles of columns that hold times."""


class Table:
    """A table that prints itself as Markdown.

    **Arguments:**

    - `title`: a line above it.
    - `columns`: the titles of the columns, which are its header.
    - `names`: how many columns name the row.
    """

    def __init__(self, title: str, *columns: str, names: int = 1):
        self.title, self.names, self.rows = title, names, [list(columns)]

    def add_row(self, *cells: object) -> None:
        """Cells from the left on; missing ones at the end are empty."""
        self.rows.append([str(x) for x in cells] + [""] * (len(self.rows[0]) - len(cells)))

    def __str__(self) -> str:
        widths = [max(3, *map(len, column)) for column in zip(*self.rows, strict=True)]
        rule = ["-" * n if i < self.names else "-" * (n - 1) + ":" for i, n in enumerate(widths)]
        place = lambda i, cell: cell.ljust(widths[i]) if i < self.names else cell.rjust(widths[i])
        lines = [[place(i, cell) for i, cell in enumerate(row)] for row in self.rows]
        lines.insert(1, rule)
        title = [self.title, ""] if self.title else []
        return "\n".join([*title, *("| " + " | ".join(line) + " |" for line in lines), ""])


class Block(NamedTuple):
    """A table in a text: its lines from `start` to `stop`, its header, and rows of figures by what names them."""

    start: int
    stop: int
    header: tuple[str, ...]
    names: int
    rows: dict[tuple[str, ...], dict[str, str]]


def blocks(text: str) -> Iterator[Block]:
    """The Markdown tables of a text."""
    lines = text.splitlines()
    cells = lambda line: tuple(x.strip().strip("*") for x in line.strip().strip("|").split("|"))
    start = 0
    while start < len(lines):
        stop = start
        while stop < len(lines) and lines[stop].startswith("|"):
            stop += 1
        if stop - start > 2:
            header, rule = cells(lines[start]), cells(lines[start + 1])
            names = sum(not x.endswith(":") for x in rule)
            rows = [dict(zip(header, cells(line), strict=False)) for line in lines[start + 2 : stop]]
            by_name = {tuple(row[x] for x in header[:names]): row for row in rows if len(row) == len(header)}
            yield Block(start, stop, header, names, by_name)
        start = stop + 1


def differences(printed: str, shown: str) -> tuple[int, list[str]]:
    """How many figures of `printed` stand in `shown` too, in a table of these columns, and which are others there."""
    compared, found = 0, []
    for new in blocks(printed):
        for old in blocks(shown):
            if new.names != old.names or new.header[0] != old.header[0] or not {*new.header} <= {*old.header}:
                continue
            for name in new.rows.keys() & old.rows.keys():
                for column in new.header[new.names :]:
                    if any(word in column for word in _MEASURED):
                        continue
                    compared += 1
                    cells = new.rows[name][column], old.rows[name][column]
                    if not _agree(*cells):
                        found.append(f"{', '.join(name)}: {column}: {cells[0]} printed, {cells[1]} shown")
    return compared, found


def _agree(printed: str, shown: str) -> bool:
    """Whether two cells say the same, their numbers to 5 % or to one in the last digit shown."""
    pairs = list(zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=False))
    if _NUMBER.sub("#", printed) != _NUMBER.sub("#", shown):
        return False
    for texts in pairs:
        a, b = (float(x.replace(",", "")) for x in texts)
        unit = max((_last_digit(x) for x in texts if _digits(x) < 3), default=0.0)
        if abs(a - b) > max(_NEAR * max(abs(a), abs(b)), 1.01 * unit, _ROUNDING):
            return False
    return True


def _digits(number: str) -> int:
    return len(re.sub(r"e.*|\D", "", number).lstrip("0"))


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.replace(",", "").partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def replaced(printed: str, shown: str) -> str:
    """`shown` with the tables that `printed` has too, by their header, as they are printed."""
    lines, new = shown.splitlines(), {x.header: x for x in blocks(printed)}
    for old in reversed(list(blocks(shown))):
        if old.header in new:
            x = new[old.header]
            lines[old.start : old.stop] = printed.splitlines()[x.start : x.stop]
    return "\n".join(lines) + "\n"
