"""Transmissions of a URDF as motors: those of ROS 1, of `ros2_control`, of PR2's controllers and of Drake."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from .._misc._errors import InputError
from ._mujoco import mujoco
from ._rows import Row
from ._xml import local


def _value(elements: list[ET.Element], *tags: str) -> float | None:
    """The first number in elements of some tags: their text, or their `value`."""
    for element in elements:
        for x in element.iter():
            if local(x.tag) in tags:
                try:
                    return float(x.get("value") or x.text or "")
                except ValueError as error:
                    raise InputError(
                        f"<{local(x.tag)}> of '{elements[0].get('name')}' is no number: {error}."
                    ) from error
    return None


def _add_motor(spec: Any, name: str, joint: str, gear: float) -> None:
    motor = spec.add_actuator(name=name, target=joint, trntype=mujoco().mjtTrn.mjTRN_JOINT)
    motor.set_to_motor()
    motor.gear[0] = gear


def _interfaces(element: ET.Element, tag: str) -> str:
    """What kinds of commands other than efforts an element takes."""
    found = [x.get("name") or (x.text or "").strip().rpartition("/")[2] for x in element.iter(tag)]
    return "" if not found or any("effort" in x.lower() for x in found) else found[0]


def _used(name: str, interface: str) -> Row:
    why = "its input is an effort" + (f"; the gains of '{interface}' are in no URDF" if interface else "")
    return "actuator of a transmission", name, "used", why


def add_motors(spec: Any, robot: ET.Element) -> Iterator[Row]:
    """Adds a motor for each simple transmission and each `ros2_control` joint; yields what is to be said of it.

    With the reduction n the joint's effort is n times the motor's, and a rotor of inertia I counts as n^2 I.
    """
    moving, driven = {joint.name: joint for joint in spec.joints}, set[str]()
    taken = {x.name for x in spec.actuators}
    for given in robot.iter("transmission"):
        name = given.get("name") or "transmission"
        kind = (
            given.get("type")
            or (given.findtext("type") or given.findtext("plugin") or "SimpleTransmission").strip()
        )
        joints, actuators = given.findall("joint"), given.findall("actuator")
        target = str(joints[0].get("name")) if joints else ""
        if "SimpleTransmission" not in kind or len(joints) != 1 or len(actuators) > 1:
            yield "transmission", name, "ignored", f"{kind} is not read, only simple ones of one joint are"
            continue
        if target not in moving:
            yield "transmission", name, "ignored", f"its joint '{target}' is not there, or does not move"
            continue
        gear = _value([*actuators, *joints, given], "mechanicalReduction", "mechanical_reduction") or 1.0
        own = actuators[0].get("name") if actuators else None
        own = own if own and own not in taken else name
        if own in taken:
            raise InputError(
                f"two transmissions of this URDF are called '{own}': each needs a name of its own."
            )
        taken.add(own)
        driven.add(target)
        _add_motor(spec, own, target, gear)
        rotor, ratio = _value(actuators, "rotor_inertia"), _value(actuators, "gear_ratio")
        if rotor:
            moving[target].armature += rotor * (ratio or 1.0) ** 2
        yield _used(own, _interfaces(given, "hardwareInterface"))
    for control in robot.iter("ros2_control"):
        for joint in control.findall("joint"):
            name = str(joint.get("name"))
            if joint.find("command_interface") is None or name in driven:
                continue
            if name not in moving:
                yield "ros2_control", name, "ignored", "its joint is not there, or does not move"
                continue
            driven.add(name)
            _add_motor(spec, name, name, 1.0)
            yield _used(name, _interfaces(joint, "command_interface"))
