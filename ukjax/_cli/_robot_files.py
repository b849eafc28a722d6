"""Robots' files on the command line: `robot.xml` or `robot.sdf` in place of a model's name, and `ukjax load`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

import ukjax as uk

from ._terminal import print_json, start_jax

_ENDINGS = (".xml", ".urdf", ".mjcf", ".sdf", ".world", ".usd", ".usda", ".usdc", ".usdz", ".yaml", ".yml")
_OPTIONS = {
    "free_base": False,
    "merge_fixed": True,
    "keyframe": "",
    "contact": "",
    "start": "nearest",
    "floor": False,
}


def is_robot(name: str) -> bool:
    """Whether a name on the command line means a robot's file."""
    return name.lower().endswith(_ENDINGS)


def _word(label: str) -> str:
    """A label as a parameter's name."""
    word = re.sub(r"\W", "_", label)
    return word if word.isidentifier() else f"_{word}"


def _contact(text: str) -> Any:
    """`contact` of `load` from words: all, none, or limits,friction,foot:floor; empty where it is not given. As in Python
    it may also be true, false or a list of JSON."""
    whole = {"": None, "none": False, "false": False, "all": True, "true": True}
    if text.lower() in whole:
        return whole[text.lower()]
    words = re.sub(r"[][\s\"']", "", text).split(",")
    return [tuple(x.split(":")) if ":" in x else x for x in words if x]


@functools.lru_cache(maxsize=4)
def _load_robot(
    path: str, free_base: bool, merge_fixed: bool, keyframe: str, contact: str, start: Any, floor: Any
) -> uk.robots.Robot:
    options = {"free_base": free_base, "merge_fixed": merge_fixed, "keyframe": keyframe or None}
    return uk.load(path, contact=_contact(contact), start=start, floor=floor, **options)


def robot_model(path: str) -> Callable[..., uk.Problem]:
    """The problem of a robot's file as a function of where it starts: of joints by their names, `hip` the position
    [rad], [m] from the reference posture and `hip_rate` the velocity, loops closed; and of the options of `load`.
    """

    def model(**parameters: Any) -> uk.Problem:
        options = {name: parameters.pop(name, default) for name, default in _OPTIONS.items()}
        problem = _load_robot(path, **options).problem
        places = _places(problem.system)
        given = [(*places[name], value) for name, value in parameters.items()]
        at, rates = ({label: x for of, label, x in given if of == of_q} for of_q in (True, False))
        return uk.mechanisms.problem(problem, at=at or None, rates=rates or None)

    known = inspect.Parameter
    named = [known(name, known.KEYWORD_ONLY, default=default) for name, default in _OPTIONS.items()]
    starts = _places(_load_robot(path, **_OPTIONS).mechanism)
    named += [known(name, known.KEYWORD_ONLY, default=None, annotation="float") for name in starts]
    model.__signature__ = inspect.Signature(named)  # pyright: ignore[reportFunctionMemberAccess]
    return model


def _places(system: Any) -> dict[str, tuple[bool, str]]:
    """By a parameter's name: whether it is a coordinate, or else a velocity, and its label."""
    both = set(system.labels) & set(system.velocity_labels)  # not the quaternions
    of_q = {_word(x): (True, x) for x in system.labels if x in both}
    of_v = {x: _word(x) if x in system.state_labels else f"{_word(x)}_rate" for x in system.velocity_labels}
    return of_q | {name: (False, x) for x, name in of_v.items()}


def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An MJCF, URDF, SDF, USD or YAML file.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what is not modelled and changes the motion.")
    ] = False,
    free_base: Annotated[
        bool, typer.Option("--free-base", help="Let a base that the file fixes to the world move freely.")
    ] = False,
    contact: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What to keep of limits, friction and contact: all, none, or limits,friction,foot:floor.",
        ),
    ] = "",
    floor: Annotated[
        bool, typer.Option("--floor", help="Add a level plane at the height 0, and keep contact with it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Load a robot's file, and print what of it is used, approximated and ignored."""
    start_jax()
    robot = uk.load(file, strict=strict, free_base=free_base, contact=_contact(contact), floor=floor)
    if not as_json:
        print(robot.report)
        return
    system = robot.mechanism
    features = [dataclasses.asdict(x) for x in robot.report.features]
    labels = {"coordinates": system.labels, "velocities": system.velocity_labels}
    print_json({"source": robot.report.source, **labels, "features": features})
