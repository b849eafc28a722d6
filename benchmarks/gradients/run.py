"""A benchmark of gradients: error, processor time and memory of each engine against the length of the run.

    python benchmarks/gradients/run.py [--engines ukjax mjx] [--tasks loop impact] [--quick] [--out FOLDER]

Writes gradients.md, gradients.json and gradients.png. An engine is a file by_NAME.py (README.md says what it holds).
Each is run by this interpreter, or that of the environment variable NAME_PYTHON, in a process of its own for every task,
which is given up after --limit seconds.
"""

import argparse
import ctypes
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted((x.stem[3:] for x in HERE.glob("by_*.py")), key=lambda x: (x != "ukjax", x))


# ---- one engine and task, in a process of its own


def peak() -> float:
    """The most memory this process has held since `forget` [MB], or what it holds where systems do not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 1e3


def forget() -> None:
    """Gives back unused memory and lets `peak` begin anew; Linux only."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def measure(name: str, task: str, number: int) -> None:
    """Prints a line of JSON for each way of an engine and each of the first lengths of a run."""
    from tasks import TASKS

    try:
        engine = importlib.import_module(f"by_{name}")
    except ImportError as err:
        print(json.dumps({"engine": name, "missing": str(err)}))
        return
    if task not in getattr(engine, "TASKS", TASKS):
        refused = "has no code for this task in its file here"
        print("\n".join(json.dumps({"engine": x, "task": task, "refused": refused}) for x in engine.ENGINES))
        return
    given = TASKS[task]()
    for way, jacobian in engine.ENGINES.items():
        compute = None
        for end in given.ends[:number]:
            told = {"engine": way, "task": task, "end": end}
            try:
                compute = compute or jacobian(given)
                compute(end)  # compiles
                forget()
                before, start = peak(), time.process_time()
                found = compute(end)
                told |= {"time": time.process_time() - start, "memory": peak() - before}
                told["jacobian"] = found.tolist()
            except Exception as err:
                told["refused"] = str(err).strip().splitlines()[0][:120] if str(err) else type(err).__name__
            print(json.dumps(told), flush=True)
            if "refused" in told:
                break


# ---- all of them


def collect(names: list[str], tasks: list[str], number: int, limit: float, file: Path) -> list[dict]:
    """Runs everything; what is there so far stands in a file after each task."""
    found, missing = [], set()
    for task in tasks:
        for name in names:
            if name in missing:
                continue
            python = os.environ.get(f"{name.upper()}_PYTHON", sys.executable)
            command = [python, __file__, "--measure", name, task, str(number)]
            run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                out, err = run.communicate(timeout=limit)
                ended = "" if run.returncode == 0 else f"ended with {run.returncode}: {err.strip()[-200:]}"
            except subprocess.TimeoutExpired:
                run.kill()
                out, ended = run.communicate()[0], f"no result within {limit:g} s"
            lines = [json.loads(x) for x in out.splitlines() if x.startswith('{"engine"')]
            for line in lines:
                if "missing" in line:
                    missing.add(name)
                    print(f"{name} is left out: {line['missing']}", file=sys.stderr)
            found += [x | {"file": name} for x in lines if "missing" not in x]
            if ended:
                found.append({"engine": name, "file": name, "task": task, "refused": ended})
            file.write_text(json.dumps(found, indent=1))
            print(name, task, ended, file=sys.stderr, flush=True)
    return found


def judge(found: list[dict]) -> None:
    """Adds errors: the largest of all entries, in parts of the largest entry of the exact Jacobian."""
    import jax
    import numpy as np
    from tasks import TASKS

    jax.config.update("jax_enable_x64", True)
    exact = {}
    for x in found:
        if "jacobian" in x and "error" not in x:
            key = x["task"], x["end"]
            if key not in exact:
                exact[key] = TASKS[x["task"]]().exact(x["end"])
            error = np.abs(np.array(x["jacobian"]) - exact[key]).max() / np.abs(exact[key]).max()
            x["error"] = float(error)


def write_tables(found: list[dict]) -> str:
    """Markdown: a row for each task, a cell has a value for each length of a run; reasons stand below."""
    from tasks import TASKS

    files = {x["engine"]: x["file"] for x in found}
    ways = [x for x in files if x != files[x] or [*files.values()].count(x) == 1]
    done = [x for x in TASKS if any(y["task"] == x for y in found)]
    reasons: dict[str, str] = {}
    parts = []
    for title, what, form in (
        ("Largest error, in parts of the largest entry", "error", lambda x: f"{x:.0e}" if x == x else "NaN"),
        ("Processor time of a Jacobian after the first [ms]", "time", lambda x: f"{1e3 * x:.3g}"),
        ("Memory that one adds [MB]", "memory", lambda x: f"{x:.3g}"),
    ):
        lines = [
            f"{title}:",
            "",
            "| task | run [s] | " + " | ".join(ways) + " |",
            "|---" * (len(ways) + 2) + "|",
        ]
        for task in done:
            cells, ends = [], sorted({x["end"] for x in found if x["task"] == task and "end" in x})
            for way in ways:
                own = [x for x in found if x["task"] == task and x["engine"] in (way, files[way])]
                cell = [form(x[what]) for x in own if what in x]
                for x in own:
                    # a process that ended early may have been through with some of its ways
                    if "refused" in x and len(cell) < len(ends):
                        cell.append(reasons.setdefault(x["refused"], f"({len(reasons) + 1})"))
                cells.append(", ".join(cell))
            lines.append(f"| {task} | {', '.join(f'{x:g}' for x in ends)} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    notes = "\n".join(f"- {number} {reason}" for reason, number in reasons.items())
    return "\n\n".join([*parts, notes]) + "\n"


def draw(found: list[dict], file: Path) -> None:
    """Error, time and memory against the length of the run, of tasks with several lengths."""
    import matplotlib.pyplot as plt

    ways = list(dict.fromkeys(x["engine"] for x in found if "error" in x))
    tasks = [
        x
        for x in dict.fromkeys(x["task"] for x in found)
        if len({y["end"] for y in found if y["task"] == x and "end" in y}) > 1
    ]
    if not tasks:
        return
    size = (2.2 * len(tasks) + 1, 7)
    figure, axes = plt.subplots(
        3, len(tasks), figsize=size, squeeze=False, sharey="row", sharex="col", layout="constrained"
    )
    for column, task in zip(axes.T, tasks, strict=True):
        column[0].set_title(task.replace(": ", ":\n").replace(", ", ",\n"), fontsize=8)
        for ax, (what, unit) in zip(column, (("error", 1), ("time", 1e3), ("memory", 1)), strict=True):
            for i, way in enumerate(ways):
                own = [x for x in found if x["task"] == task and x["engine"] == way and what in x]
                values = [max(unit * x[what], 1e-17 if what == "error" else 1e-2) for x in own]
                ax.loglog(
                    [x["end"] for x in own], values, "o-", color=f"C{i}", label=way, markersize=3, linewidth=1
                )
            ax.grid(alpha=0.3)
            ax.tick_params(axis="x", which="minor", labelbottom=False)
        column[2].set_xlabel("run [s]")
    for ax, label in zip(
        axes[:, 0], ("largest error / largest entry", "processor time [ms]", "memory [MB]"), strict=True
    ):
        ax.set_ylabel(label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        return measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    from tasks import TASKS

    sys.path.insert(0, str(HERE.parent))
    from _timing import machine

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--tasks", nargs="+", default=[""], help="words of which a task's name has one")
    parser.add_argument("--quick", action="store_true", help="only the shortest runs")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one engine and task")
    parser.add_argument(
        "--read", type=Path, nargs="+", default=[], help="gradients.json of other calls, shown too"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("."), help="folder of the table, the data and the figure"
    )
    asked = parser.parse_args()
    tasks = [x for x in TASKS if any(word in x for word in asked.tasks)]
    file = asked.out / "gradients.json"
    found = collect(asked.engines, tasks, 1 if asked.quick else 99, asked.limit, file)
    found = [y for x in asked.read for y in json.loads(x.read_text())] + found
    judge(found)
    text = f"{machine()}, {time.strftime('%Y-%m-%d')}\n\n{write_tables(found)}"
    print(text)
    (asked.out / "gradients.md").write_text(text)
    file.write_text(json.dumps(found, indent=1))
    draw(found, asked.out / "gradients.png")


if __name__ == "__main__":
    main()
