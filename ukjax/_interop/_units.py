"""Units and meanings of a model's numbers: of parameters as docstrings tell them, of coordinates as the model does."""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._run._quantities import coordinate_units
from .._system._system import has_quasi_velocities, innermost
from ..mechanisms import TreeSystem
from ..mechanisms._mechanism_system import MechanismSystem
from ..robots._actuators import Actuators
from ..robots._passive import JointDamping, JointSprings

_DERIVED = {
    "N": {"kg": 1, "m": 1, "s": -2}, "J": {"kg": 1, "m": 2, "s": -2}, "W": {"kg": 1, "m": 2, "s": -3},
    "Pa": {"kg": 1, "m": -1, "s": -2}, "Hz": {"s": -1}, "C": {"A": 1, "s": 1},
    "V": {"kg": 1, "m": 2, "s": -3, "A": -1}, "Ohm": {"kg": 1, "m": 2, "s": -3, "A": -2},
    "H": {"kg": 1, "m": 2, "s": -2, "A": -2}, "F": {"kg": -1, "m": -2, "s": 4, "A": 2},
}  # fmt: skip
_BASE = ("kg", "m", "s", "A", "K", "mol", "cd", "rad")


def base_units(unit: str) -> dict[str, int] | None:
    """The powers of the base units of SI in a unit such as `kg m^2/s`; None where it is none."""
    found = dict[str, int]()
    for k, part in enumerate(unit.split("/")):
        for word in part.split():
            known = re.fullmatch(r"([A-Za-z]+)(?:\^(-?\d+))?|1", word)
            if known is None:
                return None
            name, power = known[1], int(known[2] or 1) * (-1 if k else 1)
            of = {} if name is None else {name: 1} if name in _BASE else _DERIVED.get(name)
            if of is None:
                return None
            for base, x in of.items():
                found[base] = found.get(base, 0) + power * x
    return {x: power for x, power in found.items() if power} if unit else None


def describe_field(owner: Any, field: str) -> tuple[str, str]:
    """What the docstring of a class, or of a function beside it, says of a field, and its unit, if they say so."""
    for text in _docstrings(type(owner)):
        entry = re.search(rf"^ *- ([^:\n]*`{field}`[^:\n]*):(.*(?:\n(?! *-| *$).*)*)", text, re.MULTILINE)
        if entry is None:
            continue
        names, about = re.findall(r"`(\w+)`", entry[1]), " ".join(entry[2].split())
        units = [x for x in re.findall(r"\[([^\]]*)\]", about) if base_units(x) is not None]
        unit = (
            units[names.index(field)] if len(units) == len(names) else units[0] if len({*units}) == 1 else ""
        )
        return re.split(r"\s*[\[(;.]", about)[0].strip(" ,"), unit
    return "", ""


def describe_entries(owner: Any, field: str, system: Any) -> list[tuple[str, str]]:
    """What entries of an array belong to, and their units, where they are of joints or actuators of a tree: in their
    order, as `("knee c0", "N m s/rad")`; else none."""
    tree, places = innermost(system), None
    for load in getattr(tree, "loads", ()):
        if isinstance(load, Actuators) and (owner is load or owner is load.laws):
            return _describe_actuators(load, field, velocity_units(tree))
    if isinstance(owner, JointDamping):
        places = owner.places
    elif isinstance(owner, JointSprings):
        places = owner.places[1]
    elif field == "armature" and isinstance(tree, TreeSystem):
        places = range(len(tree.velocity_labels))
    if places is None:
        return []
    found, units = list[tuple[str, str]](), velocity_units(tree)
    for label, slides in ((tree.velocity_labels[i], units[i] == "m/s") for i in places):
        length, force, inertia = ("m", "N", "kg") if slides else ("rad", "N m", "kg m^2")
        if field in ("armature", "rest"):
            found.append((label, inertia if field == "armature" else length))
            continue
        for k, power in enumerate(("", "^2", "^3")):
            found.append(
                (f"{label} c{k}", f"{force} s{power}/{length}{power}")
                if field == "damping"
                else (f"{label} k{k}", f"{force}/{length}{power}")
            )
    return found


def _describe_actuators(load: Actuators, field: str, rates: Sequence[str]) -> list[tuple[str, str]]:
    """What entries of an array of actuators belong to, and their units where each is on one joint.

    - `rates`: the units of velocities.
    """
    names, laws = load.inputs.names, load.laws
    found, inputs, ends = list[tuple[str, str]](), [""] * len(names), ("least", "greatest")
    for k, i in enumerate(load.which):
        joints = list[str]()
        if k < len(load.lengths):
            terms = zip(load.lengths.velocities[k], load.lengths.coefficients[k], strict=True)
            joints = [rates[j] for j, c in terms if c]
        length, force = {"m/s": ("m", "N"), "rad/s": ("rad", "N m")}.get("".join(joints), ("", ""))
        along = [force, f"{force}/{length}", f"{force} s/{length}"] if force else [""] * 3
        # Of g (u - l) the input is a length, of g (u - l') a rate, of a law that is u alone a force.
        (g, *_), (b0, b1, b2) = np.asarray(laws.gain[k]), np.asarray(laws.bias[k])
        of_gain = of_input = ""
        if force and g == -b1 != 0:
            of_gain, of_input = along[1], length
        elif force and g == -b2 != 0 == b1:
            of_gain, of_input = along[2], f"{length}/s"
        elif g == 1 and b0 == b1 == b2 == 0:
            of_input = force
        if laws.dynamics[k] == "integrator":  # whose input is the rate of what the law sees
            inputs[laws.inputs[k]] = f"{length}/s" if length and of_input == length else ""
        else:
            inputs[laws.inputs[k]] = of_input
        found += {
            "gain": [(f"{names[i]} g{n}", x) for n, x in enumerate((of_gain, "", ""))],
            "bias": [(f"{names[i]} b{n}", x) for n, x in enumerate(along)],
            "range": [(f"{names[i]} {x}", force) for x in ends],
            "activation_range": [(f"{names[i]} {x}", of_input) for x in ends],
            "gear": [(names[i], "")],
        }.get(field, [])
    if field == "input_range":
        return [(f"{x} {end}", unit) for x, unit in zip(names, inputs, strict=True) for end in ends]
    return found


def _docstrings(kind: type) -> Iterator[str]:
    yield from (inspect.cleandoc(x.__doc__) for x in kind.__mro__ if "__doc__" in vars(x) and x.__doc__)
    module = sys.modules.get(kind.__module__)
    for x in vars(module).values() if module else ():
        if inspect.isfunction(x) and x.__module__ == kind.__module__ and x.__doc__:
            yield inspect.cleandoc(x.__doc__)


def velocity_units(system: Any) -> tuple[str, ...]:
    """The units of the velocities of a system, each empty where it is not known."""
    system = innermost(system)
    if isinstance(system, TreeSystem):
        slides, states = system.order.slides, len(system.state_labels)
        labels = system.velocity_labels[: len(system.velocity_labels) - states]
        return (*("m/s" if x in slides else "rad/s" for x in labels), *[""] * states)
    if isinstance(system, MechanismSystem) and has_quasi_velocities(system):
        last = [x.rpartition(" ")[2] for x in system.velocity_labels]
        return tuple("m/s" if x in ("x", "y", "z") else "rad/s" if x[:1] == "w" else "" for x in last)
    units = () if has_quasi_velocities(system) else coordinate_units(system)
    return tuple(f"{x}/s" if x in ("m", "rad") else "" for x in units)


def force_units(system: Any) -> tuple[str, ...]:
    """The units of the forces on the velocities of a system, each empty where it is not known."""
    return tuple({"m/s": "N", "rad/s": "N m"}.get(x, "") for x in velocity_units(system))
