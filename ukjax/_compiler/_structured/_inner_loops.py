"""Innermost loops over arrays in memory as functions of their own, in the text of an LLVM function.

What is written out is fast as it stands, and LLVM's passes would take seconds for it; loops over arrays are short, and
many times as fast as vectors. So these go where LLVM makes vectors of loops, and what calls them does not.
"""

import re
from collections import Counter
from typing import NamedTuple

_NAME = re.compile(r"%[\w.]+|@table\d+")
_TYPED = re.compile(r"(<\d+ x \w+>|\b(?:ptr|double|float|i1|i8|i16|i32|i64|label)\b)|(%[\w.]+|@table\d+)")
_CALLED = re.compile(r"@(?!table)[\w.]+(?=\()")
_HEAD = re.compile(r"(?:loop|head)\d+:$")
_LABEL = re.compile(r"^((?:loop|head|body|inner|end|after)\d+):$", re.MULTILINE)
_ARITHMETIC = re.compile(r" = (?:fadd|fsub|fmul|fdiv|call) ")
_FROM = re.compile(r" phi .*?, %(\w+)\], \[")


class SplitText(NamedTuple):
    """A text without its innermost loops, and these as functions that it declares; none where there are no such loops."""

    text: str
    functions: str


def _find_types(lines: list[str]) -> dict[str, str]:
    """The type of each name in some instructions: the one that precedes it."""
    types: dict[str, str] = {}
    for line in lines:
        kind = ""
        for word, name in _TYPED.findall(line.partition(" = ")[2] or line):
            if word:
                kind = word
            else:
                types.setdefault(name, kind)
    return types


def _names_in_order(text: str) -> dict[str, str]:
    """Names by their order in a text, so that loops that do the same are one function; `%entry` keeps its own."""
    names: dict[str, str] = {}
    for x in _NAME.findall(text):
        names.setdefault(x, x if x == "%entry" else f"%x{len(names)}")
    return names


def _end_of_loop(lines: list[str], start: int) -> int:
    """Where the innermost loop that begins at a line ends; 0 for a loop with others in it."""
    labels = 0
    for i in range(start + 1, len(lines)):
        if lines[i].endswith(":"):
            labels += 1
            if lines[i].startswith(("end", "after")):
                return i if labels == 2 else 0
            if not lines[i].startswith(("body", "inner")):
                return 0
    return 0


class _OutlinedLoop(NamedTuple):
    """A loop as a function: its text after its name, and what it is given, with types."""

    code: str
    given: dict[str, str]


def _outline(lines: list[str], start: int, uses: Counter) -> _OutlinedLoop | None:
    """The innermost loop that begins at a line, if it computes and stores, and only what it stores is used after it."""
    end = _end_of_loop(lines, start)
    inside = lines[start:end]
    text = "\n".join(inside)
    entered, own = _FROM.search(text), Counter(_NAME.findall(text))
    defined = {x.split(" = ")[0].strip() for x in inside if " = " in x}
    if (
        entered is None or "\n  store" not in text or not _ARITHMETIC.search(text)
    ):  # moves are as fast without
        return None
    if any(uses[x] != own[x] for x in defined):
        return None
    inner = {f"%{x[:-1]}" for x in (*inside, lines[end]) if x.endswith(":")} | {f"%{entered[1]}"}
    given = {x: t for x, t in _find_types(inside).items() if x not in defined and x not in inner}
    # No two arrays in memory overlap.
    head = ", ".join(f"{t}{' noalias' if t == 'ptr' else ''} {x}" for x, t in given.items())
    body = text.replace(f"%{entered[1]}]", "%entry]")
    names = _names_in_order(head + body)
    code = f"({head}) {{\nentry:\n  br label %{lines[start][:-1]}\n{body}\n{lines[end]}\n  ret void\n}}\n"
    code = _NAME.sub(lambda m: names[m[0]], code)
    return _OutlinedLoop(_LABEL.sub(lambda m: f"{names['%' + m[1]][1:]}:", code), given)


def split_inner_loops(text: str) -> SplitText:
    """Innermost loops that store, and of which nothing is used after them but what they store, as functions."""
    lines = text.split("\n")
    functions, calls, declared = dict[str, str](), dict[int, tuple[int, str]](), list[str]()
    uses, counted = Counter[str](), -1  # up to the end of the function that a loop is in
    for start in (i for i, line in enumerate(lines) if line.endswith(":") and _HEAD.match(line)):
        if start > counted:
            counted = lines.index("}", start)
            begin = next(i for i in range(start, -1, -1) if lines[i].startswith("define"))
            uses = Counter(_NAME.findall("\n".join(lines[begin:counted])))
        if (found := _outline(lines, start, uses)) is None:
            continue
        if found.code not in functions:
            functions[found.code] = f"@inner{len(functions)}"
            declared.append(f"declare void {functions[found.code]}({', '.join(found.given.values())})")
        given = ", ".join(f"{t} {x}" for x, t in found.given.items())
        calls[start - 1] = _end_of_loop(lines, start), f"  call void {functions[found.code]}({given})"
    kept, i = [], 0
    while i < len(lines):
        if i in calls:
            end, call = calls[i]
            kept += [call, f"  br label %{lines[end][:-1]}"]
            i = end
        else:
            kept.append(lines[i])
            i += 1
    called = set(_CALLED.findall("".join(functions)))
    own = [x for x in lines if x.startswith("declare") and called & set(_CALLED.findall(x))]
    defined = [f"define void {name}{code}" for code, name in functions.items()]
    return SplitText("\n".join([*declared, *kept]), "\n".join([*own, *defined]))
