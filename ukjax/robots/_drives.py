"""Reads the actuators of a model: which are used, on what they work, and what the report says of the others."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._misc._types import as_jax
from .._system._labels import unique_names
from ._actuators import ActuatorInputs, Actuators, TotalLimits
from ._controllers import SLOTS, read_controller
from ._laws import Laws, Muscles
from ._lengths import Lengths, Path, Term
from ._passive import compensation
from ._reference import Reference, is_given, mujoco, word_of
from ._report import FeatureParts, RefusedError, Row, features
from ._transmissions import (
    AbstractTransmission,
    PathTransmission,
    find_joint_terms,
    make_crank_transmission,
    make_orientation,
    make_parent_transmission,
    make_site_transmission,
    turns_in_parent,
)


class _Drives(NamedTuple):
    """Actuators on coordinates with their lengths, and those on bodies with what they work on."""

    on_coordinates: list[int]
    lengths: list[tuple[list[Term], float, int]]
    on_bodies: list[int]
    transmissions: list[AbstractTransmission]


def _check_supported(at: Reference, i: int) -> None:
    model = at.model
    gain = word_of("Gain", model.actuator_gaintype[i])
    bias = word_of("Bias", model.actuator_biastype[i])
    dynamics = word_of("Dyn", model.actuator_dyntype[i])
    for what, kind, known in (
        ("gain", gain, ("fixed", "affine", "muscle", "pid", "dcmotor", "so3")),
        ("bias", bias, ("none", "affine", "muscle", "dcmotor", "so3")),
        ("dynamics", dynamics, ("none", "filter", "filterexact", "integrator", "muscle", "pid", "dcmotor")),
    ):
        if kind not in known:
            raise RefusedError(f"its {what} is '{kind}', which is not supported, so here it exerts no force")
    if model.actuator_plugin[i] >= 0:
        raise RefusedError("it is a plugin, so here it exerts no force")


def _add_target(
    at: Reference, i: int, gear: np.ndarray, lengths: Mapping[int, Lengths | Path], drives: _Drives
) -> None:
    model, kinds = at.model, mujoco().mjtTrn
    kind, target = int(model.actuator_trntype[i]), int(model.actuator_trnid[i][0])
    if kind in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT) and not turns_in_parent(at, i):
        own = find_joint_terms(at, i, gear)
    elif kind == kinds.mjTRN_TENDON and isinstance(lengths.get(target), Lengths):
        length: Any = lengths[target]
        terms = zip(
            length.coordinates[0], length.velocities[0], np.asarray(length.coefficients)[0], strict=True
        )
        own = (
            [(q, v, float(gear[0] * c)) for q, v, c in terms],
            float(gear[0] * np.asarray(length.reference)[0]),
            -1,
        )
    else:
        if word_of("Trn", kind) == "so3":
            made = make_orientation(at, i)
        else:
            made = [_make_transmission(at, i, kind, gear, lengths.get(target))]
        drives.transmissions.extend(made)
        drives.on_bodies.extend([i] * len(made))
        return
    drives.on_coordinates.append(i)
    drives.lengths.append(own)


def _make_transmission(
    at: Reference, i: int, kind: int, gear: np.ndarray, length: Any
) -> AbstractTransmission:
    kinds = mujoco().mjtTrn
    if kind == kinds.mjTRN_TENDON and isinstance(length, Path):
        return PathTransmission(length.bodies, length, as_jax(float(gear[0])))
    if kind == kinds.mjTRN_JOINTINPARENT:
        return make_parent_transmission(at, i, gear)
    if kind == kinds.mjTRN_SITE:
        return make_site_transmission(at, i, gear)
    if kind == kinds.mjTRN_SLIDERCRANK:
        return make_crank_transmission(at, i, gear)
    raise RefusedError(
        f"it works on '{word_of('Trn', kind)}', which is not supported, so here it exerts no force"
    )


def _read_laws(at: Reference, which: Sequence[int]) -> Laws:
    model, which = at.model, list(which)
    gain, bias, dynamics = (
        np.array(getattr(model, f"actuator_{x}prm")[which], float) for x in ("gain", "bias", "dyn")
    )
    of_muscle = lambda kinds, kind: [k for k, i in enumerate(which) if kinds[i] == kind]
    pulls = of_muscle(model.actuator_gaintype, mujoco().mjtGain.mjGAIN_MUSCLE)
    resists = of_muscle(model.actuator_biastype, mujoco().mjtBias.mjBIAS_MUSCLE)
    out = [_first_address(model, "out", i) for i in which]
    of_lengths = np.array(model.actuator_lengthrange)[out], np.array(model.actuator_acc0)[out]
    muscles = lambda prm, own: Muscles.of(prm[own], *(x[own] for x in of_lengths))
    linear, shift = gain[:, :3].copy(), bias[:, :3].copy()
    linear[model.actuator_gaintype[which] == mujoco().mjtGain.mjGAIN_FIXED, 1:] = 0.0
    shift[model.actuator_biastype[which] == mujoco().mjtBias.mjBIAS_NONE] = 0.0
    linear[pulls], shift[resists] = 0.0, 0.0
    controlled = {k: kind for k, i in enumerate(which) if (kind := _controller(model, i))}
    linear[list(controlled)] = 0.0
    shift[[k for k, kind in controlled.items() if kind != "pid"]] = 0.0
    heads = [k for k in controlled if not k or which[k] != which[k - 1]]
    first, count = model.actuator_actadr[which], model.actuator_actnum[which]
    period = np.array([_period(model, i) for i in which])
    return Laws(
        gain=as_jax(linear),
        bias=as_jax(shift),
        range=as_jax(np.array(model.actuator_forcerange[which])),
        times=as_jax(dynamics[:, :3]),
        activation_range=as_jax(np.array(model.actuator_actrange[which])),
        period=as_jax(period),
        muscles=muscles(gain, pulls),
        passive=muscles(bias, resists),
        controllers=tuple(
            read_controller(model, which[k], k, controlled[k], float(period[k])) for k in heads
        ),
        limited=tuple(
            bool(model.actuator_forcelimited[i]) and controlled.get(k) != "so3" for k, i in enumerate(which)
        ),
        inputs=tuple(0 if k in controlled else _first_address(model, "ctrl", i) for k, i in enumerate(which)),
        states=tuple(
            -1 if k in controlled or first[k] < 0 else int(first[k] + count[k] - 1) for k in range(len(which))
        ),
        dynamics=tuple(_dynamics(model, i) for i in which),
        kept=tuple(map(bool, model.actuator_actlimited[which])),
        turns=tuple(map(bool, period > 0)),
        pulls=tuple(pulls),
        resists=tuple(resists),
    )


def _controller(model: Any, i: int) -> str:
    kind = word_of("Gain", model.actuator_gaintype[i])
    return kind if kind in SLOTS else ""


def _dynamics(model: Any, i: int) -> str:
    return word_of("Dyn", model.actuator_dyntype[i]).replace("filterexact", "filter")


def _period(model: Any, i: int) -> float:
    """After which a servo's length, an angle of a ball, means the same; 0 of others, and before MuJoCo 4."""
    kinds, dynamics = mujoco().mjtTrn, _dynamics(model, i)
    servo = _controller(model, i) == "pid" or (
        model.actuator_gaintype[i] == mujoco().mjtGain.mjGAIN_FIXED
        and model.actuator_biastype[i] == mujoco().mjtBias.mjBIAS_AFFINE
        and model.actuator_gainprm[i][0] == -model.actuator_biasprm[i][1]
        and dynamics in ("none", "integrator")
    )
    if not (servo and hasattr(model, "nactuator")):
        return 0.0
    target, gear = model.actuator_trnid[i], np.array(model.actuator_gear[_first_address(model, "out", i)])
    if model.actuator_trntype[i] == kinds.mjTRN_SITE:
        turns = target[1] >= 0 and not gear[:3].any()
        return float(2 * np.pi * np.linalg.norm(gear[3:]) * turns)
    of_joint = model.actuator_trntype[i] in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT)
    ball = of_joint and model.jnt_type[target[0]] == mujoco().mjtJoint.mjJNT_BALL
    return float(2 * np.pi * np.linalg.norm(gear[:3]) * ball)


def input_names(at: Reference) -> tuple[str, ...]:
    """Names of the inputs: of the actuators, with a number where one has several."""
    counts = getattr(at.model, "actuator_ctrlnum", np.ones(at.model.nu, int))
    named = zip(at.names.actuators, counts, strict=True)
    return tuple(name if n == 1 else f"{name} {k}" for name, n in named for k in range(n))


def start_activations(at: Reference, keyframe: int | None) -> np.ndarray:
    """The activations to start with (na,): those of a keyframe, else of a compiled model."""
    return np.array(at.data.act if keyframe is None else at.model.key_act[keyframe])


def activation_names(at: Reference) -> tuple[str, ...]:
    """Names of the activations, by MuJoCo's numbers."""
    model, names = at.model, [""] * at.model.na
    for i, name in enumerate(at.names.actuators):
        first, count = int(model.actuator_actadr[i]), int(model.actuator_actnum[i])
        if (kind := _controller(at.model, i)) and count:
            own = read_controller(model, i, 0, kind, 0.0)
            names[first : first + count] = [f"{name} {slot}" for slot, _ in own.states]
            continue
        for k in range(count):
            names[first + k] = f"{name} activation" + (f" {k}" if count > 1 else "")
    return unique_names(names)


def actuators(
    at: Reference, lengths: Mapping[int, Lengths | Path], inputs: ActuatorInputs, start: np.ndarray
) -> FeatureParts:
    """The actuators of a model as a load, with the activations that they start with."""
    model = at.model
    drives, rows = _read_drives(at, lengths)
    which = (*drives.on_coordinates, *drives.on_bodies)
    rows += _list_total_limits(at)
    if not which:
        return FeatureParts(features=features(rows))
    terms, reference, balls = zip(*drives.lengths, strict=True) if drives.lengths else ((), (), (-1,))
    several = np.array([all(place is None for place, *_ in x) for x in terms], bool)
    gear = np.asarray(model.actuator_gear)[
        [_first_address(model, "out", i) for i in drives.on_coordinates], 0
    ]
    (weights,) = compensation(at).loads or (None,)
    limits = _read_total_limits(model, drives, weights is not None)
    clamp = not model.opt.disableflags & int(mujoco().mjtDisableBit.mjDSBL_CLAMPCTRL)
    load = Actuators(
        name="actuators",
        lengths=Lengths.of(terms, reference, balls if max(balls) >= 0 else ()),
        transmissions=tuple(drives.transmissions),
        laws=_read_laws(at, which),
        inputs=inputs,
        input_range=as_jax(np.array(model.actuator_ctrlrange)),
        start=as_jax(start),
        limits=limits,
        compensation=weights if any(limits.compensated) else None,  # pyright: ignore[reportArgumentType]
        gear=as_jax(gear),
        clamped=tuple(bool(x and clamp) for x in model.actuator_ctrllimited),
        delays=_delays(model),
        geared=tuple(np.flatnonzero((gear != 0) & ~several).tolist()),
        which=which,
        activations=activation_names(at),
    )
    return FeatureParts(loads=(load,), features=features(rows))


def _delays(model: Any) -> tuple[float, ...]:
    """Of the inputs, of which an actuator may have several [s]."""
    if not hasattr(model, "actuator_delay"):  # before MuJoCo 4
        return (0.0,) * int(model.nu)
    return tuple(map(float, np.repeat(model.actuator_delay, model.actuator_ctrlnum)))


def _read_drives(at: Reference, lengths: Mapping[int, Lengths | Path]) -> tuple[_Drives, list[Row]]:
    """What works on what, and lines for the report."""
    model, rows, drives = at.model, list[Row](), _Drives([], [], [], [])
    for i, name in enumerate(at.names.actuators):
        kind, off = f"actuator on {word_of('Trn', model.actuator_trntype[i])}", _why_off(at, i)
        if off:
            rows.append((kind, name, "off", off))
            continue
        try:
            _check_supported(at, i)
            _add_target(
                at,
                i,
                np.asarray(model.actuator_gear[_first_address(model, "out", i)], float),
                lengths,
                drives,
            )
        except RefusedError as why:
            rows.append((kind, name, "ignored", str(why)))
        else:
            rows += [(kind, name, "used", ""), *_notes(at, i, name)]
    return drives, rows


def _first_address(model: Any, of: str, i: int) -> int:
    """Where the inputs (`"ctrl"`) or outputs (`"out"`) of an actuator start; before MuJoCo 4 each has one."""
    return int(getattr(model, f"actuator_{of}adr", np.arange(model.nu))[i])


def _why_off(at: Reference, i: int) -> str:
    """Why an actuator exerts no force by what the file says; empty where it does."""
    if at.is_disabled("ACTUATION"):
        return "actuation is disabled in the file"
    group = int(at.model.actuator_group[i])
    off = 0 <= group <= 30 and int(at.model.opt.disableactuator) >> group & 1
    return "its group is disabled in the file" if off else ""


def _notes(at: Reference, i: int, name: str) -> list[Row]:
    """What of an actuator that is used is not as it stands."""
    model, rows = at.model, list[Row]()
    if controller := _controller(model, i):
        why = "its activations are states" if model.actuator_actnum[i] else ""
        rows.append((f"actuator {controller}", name, "used", why))
    elif (dynamics := _dynamics(model, i)) != "none":
        rows.append((f"actuator {dynamics}", name, "used", "its activation is a state"))
    if model.actuator_actlimited[i]:
        rows.append(("actuator actrange", name, "used", ""))
    if model.actuator_actearly[i] and model.actuator_actnum[i]:
        rows.append(("actuator actearly", name, "off", "it is about time steps, and runs have none"))
    if is_given(model, "actuator_delay", i):
        why = "inputs that are functions of time alone are delayed, others not"
        rows.append(("actuator delay", name, "approximated", why))
    on_tendon = model.actuator_trntype[i] == mujoco().mjtTrn.mjTRN_TENDON
    for field in ("actuator_damping", "actuator_dampingpoly", "actuator_armature"):
        if is_given(model, field, i):
            partly = on_tendon and field == "actuator_dampingpoly"
            why = "of tendons the linear part is used" if partly else ""
            rows.append((field.replace("_", " "), name, "ignored" if partly else "used", why))
    if model.actuator_forcelimited[i]:
        rows.append(("actuator forcerange", name, "used", ""))
    return rows


def _read_total_limits(model: Any, drives: _Drives, compensated: bool) -> TotalLimits:
    """Of joints on which something acts, and of tendons."""
    limited = np.asarray(model.jnt_actfrclimited, bool)
    acted = {v for terms, *_ in drives.lengths for _, v, _ in terms}
    joints = [
        j
        for j in np.flatnonzero(limited)
        if drives.on_bodies or model.jnt_actgravcomp[j] or model.jnt_dofadr[j] in acted
    ]
    which = np.array([*drives.on_coordinates, *drives.on_bodies], int)
    on_tendon = np.asarray(model.actuator_trntype)[which] == mujoco().mjtTrn.mjTRN_TENDON
    target = np.where(on_tendon, np.asarray(model.actuator_trnid)[which, 0], -1)
    tendons = [i for i in range(model.ntendon) if is_given(model, "tendon_actfrclimited", i) and i in target]
    return TotalLimits(
        joint_ranges=as_jax(np.array(model.jnt_actfrcrange[joints], float)),
        tendon_ranges=as_jax(np.array([model.tendon_actfrcrange[i] for i in tendons], float).reshape(-1, 2)),
        joints=tuple(int(model.jnt_dofadr[j]) for j in joints),
        compensated=tuple(compensated and bool(model.jnt_actgravcomp[j]) for j in joints),
        tendons=tuple(tuple(np.flatnonzero(target == i).tolist()) for i in tendons),
    )


def _list_total_limits(at: Reference) -> list[Row]:
    """What the report says of limits of the total actuator force; without actuators there is nothing to limit."""
    model, rows = at.model, list[Row]()
    if not model.nu:
        return rows
    rows += [
        ("joint actuatorfrcrange", name, "used", "")
        for j, name in enumerate(at.names.joints)
        if model.jnt_actfrclimited[j]
    ]
    rows += [
        ("tendon actuatorfrcrange", name, "used", "")
        for i, name in enumerate(at.names.tendons)
        if is_given(model, "tendon_actfrclimited", i)
    ]
    return rows
