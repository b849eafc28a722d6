"""Contact problems of ContactBench (github.com/Simple-Robotics/ContactBench), read from a copy of it.

Its problems are u = G p + g of contacts in space with coefficients of friction, two tangents before the normal. They
stand as arrays `G`, `g` and `mus` in files .npz, which its examples write too, and as numbers in tests in Python and C++.
"""

import ast
import re
from pathlib import Path

import numpy as np

NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"


def _from_arrays(path):
    """The problem of a file .npz."""
    held = np.load(path)
    if {"G", "g", "mus"} <= set(held):
        yield path.stem, held["G"], held["g"], held["mus"]


def _from_python(path):
    """Problems whose matrix and velocities are written out in a function."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        found = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.List)):
                written = node.value.args[0] if getattr(node.value, "args", None) else node.value
                try:
                    found[getattr(node.targets[0], "id", "")] = np.array(
                        ast.literal_eval(written), dtype=float
                    )
                except (ValueError, TypeError):
                    continue
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ContactProblem":
                last = node.args[-1]
                if isinstance(last, ast.List):
                    found["mus"] = np.array(ast.literal_eval(last), dtype=float)
        G, g = (found.get(first, found.get(second)) for first, second in (("G", "A"), ("g", "b")))
        if G is not None and g is not None and "mus" in found:
            yield function.name, G, g, found["mus"]


def _from_cpp(path):
    """Problems whose matrix A and velocities b are streamed, followed by coefficients in braces."""
    for case in path.read_text().split("BOOST_AUTO_TEST_CASE(")[1:]:
        parts = [re.search(x, case, re.S) for x in (r"\bA << (.*?);", r"\bb << (.*?);", r"\bmus = \{(.*?)\}")]
        if all(parts):
            A, b, mus = (np.array(re.findall(NUMBER, x.group(1)), dtype=float) for x in parts)
            yield case[: case.index(")")], A.reshape(b.size, b.size), b, mus


def problems(folder):
    """(name, G, g, mu) of each problem below `folder`, the normal row first; equal ones once."""
    told = []
    readers = {".npz": _from_arrays, ".py": _from_python, ".cpp": _from_cpp}
    for path in sorted(Path(folder).rglob("*")):
        for name, G, g, mu in readers.get(path.suffix, lambda _: ())(path):
            if np.size(g) != 3 * np.size(mu):
                continue
            first = np.arange(g.size).reshape(-1, 3)[:, [2, 0, 1]].ravel()
            problem = (G[np.ix_(first, first)], np.ravel(g)[first], np.ravel(mu))
            if not any(
                all(np.array_equal(a, b) for a, b in zip(problem, other[1:], strict=True)) for other in told
            ):
                told.append((name, *problem))
    return told
