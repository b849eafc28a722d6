"""All figures that README.md and the pages of docs quote from these scripts: runs them, and says which figures differ.

The commands are those of README.md. Each runs by itself, one after the other, for an hour of processor time in all.
What it prints is kept in `out/figures` until code changes, so that the same command goes on where it was stopped. A
table that a page has too, by its header, is compared figure by figure, times left out; `--write` puts it, and the CPU
times, into the page. Sentences around the tables are to be read by a person.

    python experiments/figures.py [--only adams flop_counts] [--write] [--quick] [--again]
"""

import argparse
import datetime
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

from paper_tables import differences, replaced

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
README = HERE / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
_COMMAND = re.compile(r"^\|.*`python experiments/(.+?)` \|", re.MULTILINE)


def commands() -> list[str]:
    """What README.md says to run: scripts of this folder with their arguments."""
    return _COMMAND.findall(README.read_text())


def changed() -> float:
    """When the package or a script was last changed."""
    return max(x.stat().st_mtime for folder in (ROOT / "ukjax", HERE) for x in folder.rglob("*.py"))


def printed_by(command: str, quick: bool, again: bool) -> tuple[str, float | None]:
    """What a command prints, and its processor time [s], unless that was kept since the last change."""
    parts = shlex.split(command) + (["--quick"] if quick else [])
    kept = ROOT / "out" / "figures" / (re.sub(r"\W+", "_", " ".join(parts)).strip("_") + ".txt")
    if not again and kept.exists() and kept.stat().st_mtime > changed():
        return kept.read_text(), None
    kept.parent.mkdir(parents=True, exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = [sys.executable, str(HERE / parts[0]), *parts[1:]]
    run = subprocess.run(script, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    kept.write_text(run.stdout)
    return run.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def write(command: str, printed: str, seconds: float | None) -> None:
    """Puts tables, and the time of the command, where they stand."""
    for page in PAGES:
        before = page.read_text()
        text = replaced(printed, before)
        if seconds is not None:
            line = re.compile(rf"^(\|.*`python experiments/{re.escape(command)}` \|) .*\|$", re.MULTILINE)
            text = line.sub(rf"\1 {in_words(seconds)} |", text)
        if text != before:
            page.write_text(text)


def main(arguments: list[str] | None = None) -> int:
    """How many figures differ, and scripts fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="the scripts of these names")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    parser.add_argument("--quick", action="store_true", help="shortened runs; compares what they have")
    parser.add_argument("--again", action="store_true", help="run also what was run before")
    options = parser.parse_args(arguments)
    if options.write and options.quick:
        parser.error("--write takes whole runs, not --quick.")
    others = 0
    for command in commands():
        if options.only and command.split(".py")[0] not in options.only:
            continue
        try:
            printed, seconds = printed_by(command, options.quick, options.again)
        except subprocess.CalledProcessError as error:
            print(f"\n## {command} ended with status {error.returncode}")
            others += 1
            continue
        print(f"\n## {command}" + ("" if seconds is None else f": {in_words(seconds)} of processor time"))
        print(printed, flush=True)
        for page in PAGES:
            count, found = differences(printed, page.read_text())
            others += len(found)
            if count:
                print(f"{page.relative_to(ROOT)}: {count} figures, {len(found)} others", *found, sep="\n- ")
        if options.write:
            write(command, printed, seconds)
    print(f"\n{datetime.date.today()}: {others} figures differ from the pages, or scripts failed.")
    return others


if __name__ == "__main__":
    sys.exit(main() > 0)
