"""The live pages of the docs, which browsers run: their sizes, and how long they take to make.

python experiments/live_pages.py [parallelogram four_bar cassie blocks] [--out docs/live]
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax

import ukjax as uk
import ukjax.mechanisms as um

HERE = Path(__file__).parent
Page = tuple[uk.Problem, dict[str, Any]]


def parallelogram() -> Page:
    """Three cranks, which pass their flat position."""
    return uk.models.parallelogram(), {}


def four_bar() -> Page:
    """A four-bar of rods, whose crank has a motor."""
    A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
    linkage = um.assemble(
        bodies=[um.rod("crank", A, B, 1.0), um.rod("coupler", B, C, 2.0), um.rod("rocker", D, C, 1.0)],
        joints=[
            um.Revolute("A", "ground", "crank", A),
            um.Revolute("B", "crank", "coupler", B),
            um.Revolute("C", "coupler", "rocker", C),
            um.Revolute("D", "ground", "rocker", D),
        ],
        loads=[um.Gravity()],
        name="four-bar",
    )
    return um.problem(linkage, rates={"crank": 3.0}, t1=2.0), {"inputs": ["A"]}


def cassie() -> Page:
    """The legs of a robot, its pelvis held: four rods close loops through springs."""
    text = (HERE / "robots" / "cassie.xml").read_text()
    held = text.replace("<freejoint/>", "").replace('qpos="0 0 1.0059301 1 0 0 0 ', 'qpos="')
    knees, feet = ["left-knee", "right-knee"], ["left_foot_mass", "right_foot_mass"]
    return uk.load(held).problem, {"inputs": knees, "parameters": feet}


def blocks() -> Page:
    """A block and two balls that fall between walls, with friction and restitution."""
    block = um.PlanarBody("block", 1.0, (-0.2, 0.3), 0.02, shape="box", edges=(0.4, 0.2))
    balls = [um.disk("ball 1", (-0.1, 0.8), 0.12, mass=0.6), um.disk("ball 2", (0.4, 0.6), 0.15, mass=0.8)]
    sides = {
        "floor": ((0.0, 0.0), None),
        "left": ((-1.0, 0.0), (1.0, 0.0)),
        "right": ((1.0, 0.0), (-1.0, 0.0)),
    }
    walls = {name: um.HalfSpace("ground", *side) for name, side in sides.items()}
    first, second = (um.Sphere(*x) for x in (("ball 1", (-0.1, 0.8), 0.12), ("ball 2", (0.4, 0.6), 0.15)))
    shapes = [um.Cuboid("block", (-0.2, 0.3), (0.4, 0.2)), first, second]
    pairs = [(a, b) for i, a in enumerate(shapes) for b in shapes[i + 1 :]]
    touching = [(f"{x.body} on {name}", x, wall) for name, wall in walls.items() for x in shapes]
    touching += [(f"{a.body} on {b.body}", a, b) for a, b in pairs]
    contacts = [um.Contact(a, b, name=name, friction=0.4, restitution=0.3) for name, a, b in touching]
    falling = um.assemble([block, *balls], loads=[um.Gravity()], contacts=contacts, name="blocks")
    return um.problem(falling, v0=[0.5, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0], t1=3.0), {}


MADE = {x.__name__: x for x in (parallelogram, four_bar, cassie, blocks)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*MADE, []], help="which; by default all")
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "docs" / "live", help="the folder they go to"
    )
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    jax.config.update("jax_enable_x64", True)
    print("| page | size [kB] | made in [s] |\n|---|---|---|")
    for name in given.names or MADE:
        problem, how = MADE[name]()
        begin = time.perf_counter()
        path = uk.to_page(problem, given.out / f"{name}.html", **how)
        print(f"| {name} | {path.stat().st_size / 1e3:.0f} | {time.perf_counter() - begin:.0f} |")


if __name__ == "__main__":
    main()
