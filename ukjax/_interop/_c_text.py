"""The files of an export to C: header, source, self-test and README."""

import importlib.metadata
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._compiler._structured._c import TYPES, FunctionText, Module, literal, wrap
from .._misc._files import replacing, writing
from .._system._labels import Labels
from .._system._problem import Problem
from ..analysis._states import mechanism_of
from ._c_functions import Function, Parameter

# Of the largest entry: another `math.h` differs in the last digit, which ill-conditioned mechanisms enlarge.
_TOLERANCE = {"float64": 1e-10, "float32": 1e-3}


class Test(NamedTuple):
    """Arguments after the parameters, and the results they are to give."""

    given: list[np.ndarray]
    expected: list[np.ndarray]


class Part(NamedTuple):
    """A function as it is written: its results' shapes by name, and its tests."""

    function: Function
    written: FunctionText
    results: dict[str, tuple[int, ...]]
    tests: list[Test]

    @property
    def about(self) -> str:
        """What it does and takes."""
        x = self.written
        loops = (
            f", {len(x.loops)} loops of at most {max(y.bound or 0 for y in x.loops)} passes"
            if x.loops
            else ""
        )
        if x.unbounded:
            loops = f", {len(x.loops)} loops, {len(x.unbounded)} of them WITHOUT a bound on their passes"
        most = f", at most {x.most_operations} with all passes" if x.loops and x.most_operations else ""
        return f"{x.operations} operations{loops}{most}; about {x.stack_bytes} bytes of stack."

    @property
    def matrices(self) -> str:
        """Which results are matrices."""
        found = [
            f"{name} {' x '.join(map(str, shape))}" for name, shape in self.results.items() if len(shape) > 1
        ]
        return f" Row by row: {', '.join(found)}." if found else ""


class File(NamedTuple):
    """All that is written of a model."""

    name: str
    problem: Problem
    dtype: str
    labels: Labels
    rows: Sequence[str]
    inputs: Sequence[str]
    parameters: Sequence[Parameter]
    parts: Sequence[Part]
    module: Module

    @property
    def real(self) -> str:
        """Its type of numbers in C."""
        return TYPES[self.dtype]

    @property
    def math(self) -> str:
        """What it needs of math.h, in words."""
        suffix = "f" if self.dtype == "float32" else ""
        return ", ".join(f"{x}{suffix}" for x in sorted(self.module.math)) or "nothing"

    @property
    def first_arguments(self) -> str:
        """What all functions take first."""
        return "parameters, t, q, v" if self.parameters else "t, q, v"


def write_files(folder: Path, file: File) -> tuple[str, ...]:
    """Writes the files, and returns their names."""
    texts = {
        f"{file.name}.h": write_header(file),
        f"{file.name}.c": write_source(file),
        f"{file.name}_test.c": _write_self_test(file),
        "README.md": _write_readme(file),
    }
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with replacing(folder / name) as partial:
            partial.write_text(text, "utf-8")
    return tuple(texts)


def _as_comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *")


def _list_entries(symbol: str, labels: Sequence[str]) -> list[str]:
    return [f"{symbol}[{i}]  {_as_comment(x)}" if x != f"{symbol}[{i}]" else x for i, x in enumerate(labels)]


def _list_parts(problem: Problem) -> list[str]:
    mechanism = mechanism_of(problem.system)
    if mechanism is None:
        return []
    parts = {"Bodies": mechanism.bodies, "Joints": mechanism.joints}
    lines = [f"{kind}: {_as_comment(', '.join(x.name for x in known))}." for kind, known in parts.items()]
    return [line for x in lines for line in textwrap.wrap(x, 100)]


def describe_origin(file: File) -> str:
    """What has written it."""
    made = f"ukjax {importlib.metadata.version('ukjax')}, {file.problem.name}"
    return f"Written by {made}: C99, {file.real}. Do not edit: write it again with ukjax."


def write_header(file: File) -> str:
    """The header."""
    upper, (of_q, of_v) = file.name.upper(), file.labels
    about = [
        describe_origin(file),
        *textwrap.wrap(_as_comment(file.problem.citation), 100),
        "",
        f"Each function takes {file.first_arguments}, what else it needs, and last its results; SI units, radians.",
        "Results may stand where arguments do. No memory is allocated and nothing is kept between calls, so",
        f"calls may run at the same time. Of math.h it needs: {file.math}.",
        "Bytes of stack are an estimate: compilers take more or less. ..._OPERATIONS is how many operations a",
        "call runs at most; where it is missing, a loop has no bound.",
        "",
        *_list_entries("q", of_q),
        *_list_entries("v", of_v),
        *_list_entries("u", file.inputs),
        *(f"row {i}  {_as_comment(x)}" for i, x in enumerate(file.rows)),
        *_list_parts(file.problem),
    ]
    lines = [
        "/*",
        *(f" * {x}".rstrip() for x in about),
        " */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
    ]
    lines += [f"#define {upper}_NQ {len(of_q)}", f"#define {upper}_NV {len(of_v)}", ""]
    lines += [
        f"/* The model's start: {file.real} q[{upper}_NQ] = {upper}_START_Q, v[{upper}_NV] = {upper}_START_V; */"
    ]
    lines += [
        f"#define {upper}_START_{k} " + wrap(f"{{{_numbers(x, file)}}}").replace("\n", " \\\n")
        for k, x in (("Q", file.problem.q0), ("V", file.problem.v0))
    ]
    lines += [""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    if file.parameters:
        lines += ["typedef struct {"]
        lines += [f"    {file.real} {x.name};{_comment_on(x)}" for x in file.parameters]
        lines += [f"}} {file.name}_parameters;", ""]
        lines += ["/* The numbers of the model that was exported. */"]
        lines += [f"extern const {file.name}_parameters {file.name}_defaults;", ""]
    for part in file.parts:
        lines += [f"/* {_as_comment(part.function.about)}{_as_comment(part.matrices)}", f" * {part.about} */"]
        if (most := part.written.most_operations) is not None:
            lines.append(f"#define {part.written.name.upper()}_OPERATIONS {most}")
        lines += [wrap(f"{part.written.head};"), ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


def _numbers(x: Any, file: File) -> str:
    dtype = "float64" if file.real == "double" else "float32"
    return ", ".join(literal(y, dtype) for y in np.asarray(x).tolist())


def _comment_on(x: Parameter) -> str:
    said = " ".join(y for y in (x.about, x.unit and f"[{x.unit}]") if y).replace("*/", "")
    return said and f" /* {said} */"


def write_source(file: File) -> str:
    """The source."""
    shared, functions = "\n".join(file.module.shared), [x.written.text for x in file.parts]
    everything = shared + "".join(functions)
    used = [("<math.h>", file.module.math or "INFINITY" in everything or "NAN" in everything)]
    used += [("<stdbool.h>", "bool" in everything), ("<stdint.h>", "_t " in everything)]
    used += [("<string.h>", "memcpy" in everything)]
    lines = [f"/* {describe_origin(file)} */"]
    lines += [f"#include {name}" for name, it in used if it]
    lines += ["", f'#include "{file.name}.h"', ""]
    if file.parameters:
        lines.append(f"const {file.name}_parameters {file.name}_defaults = {{")
        lines += [f"    .{x.name} = {literal(x.default, file.dtype)}," for x in file.parameters]
        lines += ["};", ""]
    return "\n".join([*lines, *([shared] if shared else []), "\n".join(functions)])


_COMPARE = """
/* Says how far numbers are from those that ukjax computed, and returns whether that is too far. */
static int compare(const char *what, const {real} *found, const {real} *expected, int count)
{{
    double size = 1.0, off = 0.0;
    for (int i = 0; i < count; ++i) {{
        const double e = (double)expected[i], x = (double)found[i], d = fabs(x - e);
        if (e - e == 0.0 && fabs(e) > size) size = fabs(e);
        if (x == e || (x != x && e != e)) continue; /* infinite or no number, both of them */
        if (!(d <= off)) off = d;
    }}
    const int wrong = !(off <= {tolerance!r} * size);
    printf("%-40s largest difference %.1e of %.1e%s\\n", what, off, size, wrong ? "  WRONG" : "");
    return wrong;
}}
"""


def _write_table(name: str, rows: Sequence[np.ndarray], file: File) -> list[str]:
    inner = [", ".join(literal(float(x), file.dtype) for x in row) for row in rows]
    body = ",\n".join(f"    {{{x}}}" for x in inner)
    return [f"static const {file.real} {name}[{len(rows)}][{len(rows[0])}] = {{", body, "};"]


def _write_self_test(file: File) -> str:
    lines = [
        f"/* {describe_origin(file)}",
        " * Compares with numbers that ukjax computed; returns 0 if all agree. */",
    ]
    lines += ["#include <math.h>", "#include <stdio.h>", "", f'#include "{file.name}.h"']
    lines.append(_COMPARE.format(real=file.real, tolerance=_TOLERANCE[file.dtype]))
    body = ["    int wrong = 0;"]
    for k, part in enumerate(file.parts):
        given, calls = list[str](), list[str]()
        by_pointer = [False, True, True, *(x.ndim > 0 for x in part.function.further.values())]
        for i, rows in enumerate(zip(*(x.given for x in part.tests), strict=True)):
            lines += _write_table(f"given{k}_{i}", rows, file)
            given.append(f"given{k}_{i}[i]" if by_pointer[i] else f"given{k}_{i}[i][0]")
        names = list(part.results)
        for j, rows in enumerate(zip(*(x.expected for x in part.tests), strict=True)):
            lines += _write_table(f"expected{k}_{j}", rows, file)
            title = f"{part.function.name}: {names[j]}"
            calls.append(f'        wrong += compare("{title}", r{j}, expected{k}_{j}[i], {rows[0].size});')
        results = ", ".join(f"r{j}[{x.size}]" for j, x in enumerate(part.tests[0].expected))
        if "*p" in part.written.head:
            given.insert(0, f"&{file.name}_defaults")
        given += [f"r{j}" for j in range(len(names))]
        body += [f"    for (int i = 0; i < {len(part.tests)}; ++i) {{", f"        {file.real} {results};"]
        body += [f"        {part.written.name}({', '.join(given)});", *calls, "    }"]
    main = ["", "int main(void)", "{", *body, '    printf(wrong ? "%d differ\\n" : "all agree\\n", wrong);']
    return "\n".join([*lines, *main, "    return wrong != 0;", "}", ""])


def _write_readme(file: File) -> str:
    name, (of_q, of_v) = file.name, file.labels
    first = file.parts[0]
    rows = [
        f"| `{x.written.name}` | {x.function.about} | {x.written.operations} | {x.written.stack_bytes} |"
        for x in file.parts
    ]
    lines = [
        f"# {name}: {file.problem.name} in C99", "",
        f"Written by ukjax {importlib.metadata.version('ukjax')}, in `{file.real}`. Compile and test it:", "",
        "```bash",
        f"cc -std=c99 -O2 -Wall -Wextra -pedantic {name}.c {name}_test.c -lm -o {name}_test",
        f"./{name}_test",
        "```", "",
        f"A program of yours includes `{name}.h` and is compiled with `{name}.c`. There:", "",
        "```c", wrap(f"{first.written.head};"), "```", "",
        "| function | | operations | stack, about [B] |", "|---|---|---|---|", *rows, "",
        f"Of `math.h` it needs: {file.math}. `{name}.h` says more, also which loops have no bound.", "",
        "| | coordinate |", "|---|---|", *(f"| `q[{i}]` | {x} |" for i, x in enumerate(of_q)), "",
        "| | velocity |", "|---|---|", *(f"| `v[{i}]` | {x} |" for i, x in enumerate(of_v)), "",
    ]  # fmt: skip
    if file.parameters:
        lines += [
            f"Parameters are in a struct `{name}_parameters`; `{name}_defaults` has those of the model:", "",
            "| | default | unit |", "|---|---|---|",
            *(f"| `{x.name}` | {x.default!r} | {x.unit} |" for x in file.parameters), "",
        ]  # fmt: skip
    return "\n".join(lines)
