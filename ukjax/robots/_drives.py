"""Reads the actuators of a model: which are used, on what they work, and what the report says of the others."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._misc._errors import InputError
from ._actuators import ActuatorInputs, Actuators, BodyActuator, Forces
from ._lengths import Lengths, Term
from ._mujoco import is_given, mujoco
from ._parts import FeatureParts
from ._paths import Path
from ._reference import Reference
from ._rows import RefusedError, Row, features
from ._targets import crank, find_joint_terms, make_site_transmission
from ._transmissions import AbstractTransmission, PathTransmission


class _Drives(NamedTuple):
    """Actuators on coordinates with their lengths, and those on bodies with what they work on."""

    on_coordinates: list[int]
    lengths: list[tuple[list[Term], float, int]]
    on_bodies: list[int]
    transmissions: list[AbstractTransmission]


def _kind(enum: Any, value: int, prefix: str) -> str:
    return enum(int(value)).name.removeprefix(prefix).lower()


def _check_supported(at: Reference, i: int) -> None:
    """Raises `RefusedError` for laws that are not supported."""
    model = at.model
    gain = _kind(mujoco().mjtGain, model.actuator_gaintype[i], "mjGAIN_")
    bias = _kind(mujoco().mjtBias, model.actuator_biastype[i], "mjBIAS_")
    dynamics = _kind(mujoco().mjtDyn, model.actuator_dyntype[i], "mjDYN_")
    for what, kind, known in (
        ("gain", gain, ("fixed", "affine")),
        ("bias", bias, ("none", "affine")),
        ("dynamics", dynamics, ("none", "filter", "filterexact", "integrator")),
    ):
        if kind not in known:
            raise RefusedError(f"its {what} is '{kind}', which is not supported, so here it exerts no force")
    if model.actuator_plugin[i] >= 0:
        raise RefusedError("it is a plugin, so here it exerts no force")
    if is_given(model, "actuator_delay", i):
        raise RefusedError("its input is delayed, so here it exerts no force")


def _add(
    at: Reference, i: int, gear: np.ndarray, lengths: Mapping[int, Lengths | Path], found: _Drives
) -> None:
    """Finds what an actuator works on."""
    model, kinds = at.model, mujoco().mjtTrn
    kind, target = int(model.actuator_trntype[i]), int(model.actuator_trnid[i][0])
    if kind in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT):
        own = find_joint_terms(at, i, gear)
    elif kind == kinds.mjTRN_TENDON and isinstance(lengths.get(target), Lengths):
        length: Any = lengths[target]
        terms = zip(
            length.coordinates[0], length.velocities[0], np.asarray(length.coefficients[0]), strict=True
        )
        own = [(q, v, float(gear[0] * c)) for q, v, c in terms], float(gear[0] * length.reference[0]), -1
    else:
        found.transmissions.append(_make_transmission(at, i, kind, gear, lengths.get(target)))
        found.on_bodies.append(i)
        return
    found.on_coordinates.append(i)
    found.lengths.append(own)


def _make_transmission(
    at: Reference, i: int, kind: int, gear: np.ndarray, length: Any
) -> AbstractTransmission:
    kinds = mujoco().mjtTrn
    if kind == kinds.mjTRN_TENDON and isinstance(length, Path):
        return PathTransmission(length.bodies, length, jnp.asarray(float(gear[0])))
    if kind == kinds.mjTRN_SITE:
        return make_site_transmission(at, i, gear)
    if kind == kinds.mjTRN_SLIDERCRANK:
        return crank(at, i, gear)
    raise RefusedError(
        f"it works on '{_kind(kinds, kind, 'mjTRN_')}', which is not supported, so here it exerts no force"
    )


def _forces(model: Any, which: Sequence[int]) -> Forces:
    """The laws of some actuators."""
    which = list(which)
    at = getattr(model, "actuator_ctrladr", np.arange(model.nu))[which]
    gain, bias = (np.array(x[which][:, :3]) for x in (model.actuator_gainprm, model.actuator_biasprm))
    gain[model.actuator_gaintype[which] == mujoco().mjtGain.mjGAIN_FIXED, 1:] = 0.0
    bias[model.actuator_biastype[which] == mujoco().mjtBias.mjBIAS_NONE] = 0.0
    clamp = not model.opt.disableflags & int(mujoco().mjtDisableBit.mjDSBL_CLAMPCTRL)
    clamped = (np.asarray(model.actuator_ctrllimited, bool)[at]) & clamp
    limited = np.asarray(model.actuator_forcelimited, bool)[which]
    first, count = model.actuator_actadr[which], model.actuator_actnum[which]
    integrates = model.actuator_dyntype[which] == mujoco().mjtDyn.mjDYN_INTEGRATOR
    return Forces(
        gain=jnp.asarray(gain),
        bias=jnp.asarray(bias),
        input_range=jnp.asarray(np.array(model.actuator_ctrlrange[at])),
        range=jnp.asarray(np.array(model.actuator_forcerange[which])),
        inputs=tuple(int(x) for x in at),
        states=tuple(int(x) for x in np.where(first >= 0, first + count - 1, -1)),
        integrates=tuple(map(bool, integrates)),
        clamped=tuple(map(bool, clamped)),
        limited=tuple(map(bool, limited)),
    )


def actuators(at: Reference, lengths: Mapping[int, Lengths | Path], inputs: ActuatorInputs) -> FeatureParts:
    """The actuators of a model as loads.

    **Raises:** `InputError` for inputs that look at the state, where an actuator on sites or a spatial tendon has them.
    """
    model, loads = at.model, []
    found, rows = _read(at, lengths)
    if found.on_coordinates:
        joints, limits = _limits(model, found)
        terms, reference, balls = zip(*found.lengths, strict=True)
        own = Lengths.of(terms, reference, balls if max(balls) >= 0 else ())
        forces = _forces(model, found.on_coordinates)
        which = tuple(found.on_coordinates)
        several = np.array([all(place is None for place, *_ in x) for x in terms], bool)
        first = np.asarray(model.actuator_gear)[[_first(model, "out", i) for i in which], 0]
        geared = tuple(np.flatnonzero((first != 0) & ~several).tolist())
        range_of, gear = jnp.asarray(limits), jnp.asarray(first)
        loads.append(Actuators("actuators", own, forces, inputs, range_of, joints, gear, geared, which))
    if found.on_bodies and inputs.takes > 1:
        raise InputError(
            f"ctrl must not look at q and v, since actuator '{at.names.actuators[found.on_bodies[0]]}' works on a site "
            f"or a spatial tendon; give an array or a function of t."
        )
    for i, transmission in zip(found.on_bodies, found.transmissions, strict=True):
        forces = _forces(model, [i])
        loads.append(BodyActuator(f"actuator {at.names.actuators[i]}", transmission, forces, inputs, i))
    rows += _joint_limits(at, found)
    return FeatureParts(loads=tuple(loads), features=features(rows))


def _read(at: Reference, lengths: Mapping[int, Lengths | Path]) -> tuple[_Drives, list[Row]]:
    """What works on what, and lines for the report."""
    model, rows, found = at.model, list[Row](), _Drives([], [], [], [])
    for i, name in enumerate(at.names.actuators):
        kind, off = f"actuator on {_kind_of_target(model, i)}", _why_off(at, i)
        if off:
            rows.append((kind, name, "off", off))
            continue
        try:
            _check_supported(at, i)
            _add(at, i, np.asarray(model.actuator_gear[_first(model, "out", i)], float), lengths, found)
        except RefusedError as why:
            rows.append((kind, name, "ignored", str(why)))
        else:
            rows += [(kind, name, "used", ""), *_notes(at, i, name)]
    return found, rows


def _kind_of_target(model: Any, i: int) -> str:
    return _kind(mujoco().mjtTrn, model.actuator_trntype[i], "mjTRN_")


def _first(model: Any, of: str, i: int) -> int:
    """Where the inputs (`"ctrl"`) or outputs (`"out"`) of an actuator start; before MuJoCo 4 each has one."""
    return int(getattr(model, f"actuator_{of}adr", np.arange(model.nu))[i])


def _why_off(at: Reference, i: int) -> str:
    """Why an actuator exerts no force by what the file says; empty where it does."""
    if at.disabled("ACTUATION"):
        return "actuation is disabled in the file"
    group = int(at.model.actuator_group[i])
    off = 0 <= group <= 30 and int(at.model.opt.disableactuator) >> group & 1
    return "its group is disabled in the file" if off else ""


def _notes(at: Reference, i: int, name: str) -> list[Row]:
    """What of an actuator that is used is not as it stands."""
    model, kinds, rows = at.model, mujoco().mjtDyn, list[Row]()
    dynamics = int(model.actuator_dyntype[i])
    if dynamics in (kinds.mjDYN_FILTER, kinds.mjDYN_FILTEREXACT):
        rows.append(("actuator filter", name, "approximated", "in runs the force follows its input at once"))
    if dynamics == kinds.mjDYN_INTEGRATOR:
        rows.append(("actuator integrator", name, "approximated", "in runs its activation is constant"))
    if model.actuator_actearly[i]:
        rows.append(("actuator actearly", name, "ignored", "it is about time steps"))
    for field in ("actuator_damping", "actuator_dampingpoly", "actuator_armature"):
        if is_given(model, field, i):
            rows.append((field.replace("_", " "), name, "ignored", "not supported"))
    if model.actuator_forcelimited[i]:
        rows.append(("actuator forcerange", name, "used", ""))
    return rows


def _limits(model: Any, found: _Drives) -> tuple[tuple[int, ...], np.ndarray]:
    """The velocities of joints whose total actuator force is limited, of those that have any, and the ranges."""
    acted = {v for terms, *_ in found.lengths for _, v, _ in terms}
    joints = [
        j for j in range(model.njnt) if model.jnt_actfrclimited[j] and int(model.jnt_dofadr[j]) in acted
    ]
    return tuple(int(model.jnt_dofadr[j]) for j in joints), np.array(model.jnt_actfrcrange[joints], float)


def _joint_limits(at: Reference, found: _Drives) -> list[Row]:
    """What the report says of limits of the total actuator force on joints and tendons."""
    model, rows = at.model, list[Row]()
    for j, name in enumerate(at.names.joints):
        if (
            model.jnt_actfrclimited[j] and model.nu
        ):  # without actuators, as in a URDF, there is nothing to limit
            partly = found.on_bodies or model.jnt_actgravcomp[j]
            why = "of actuators on joints and fixed tendons only" if partly else ""
            rows.append(("joint actuatorfrcrange", name, "approximated" if partly else "used", why))
    for i, name in enumerate(at.names.tendons):
        if is_given(model, "tendon_actfrclimited", i):
            rows.append(("tendon actuatorfrcrange", name, "ignored", "not supported"))
    return rows
