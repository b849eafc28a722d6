"""MuJoCo and MJX on the benchmark mechanisms: hinges about z in a tree, each loop an equality `connect` of two sites.

MuJoCo's constraints are soft. "Tight" makes them as hard as its own formulation goes, solref = (2 h, 1) and
solimp = 0.99999; "default" leaves them as a new model has them. Without contacts one iteration of its Newton solver is
enough, and saves MJX most of its time.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _peer_cases import Batch, Case, Single, error, member_steps, steps_of
from _peer_mechanisms import GROUND, Body, Mechanism

Array = np.ndarray
_TIGHT = 'solref="{:.17g} 1" solimp="0.99999 0.99999 0.001 0.5 2"'


def _site(name: str, point: tuple[float, float]) -> str:
    return f'<site name="{name}" pos="{point[0]:.17g} {point[1]:.17g} 0"/>'


def _tree(mechanism: Mechanism, parent: int, sites: dict[int, list[str]]) -> str:
    """The bodies hinged to `parent`, each with its own inside it."""

    def element(i: int, body: Body) -> str:
        moments = " ".join([f"{body.inertia:.17g}"] * 3)
        return (
            f'<body name="body {i}" pos="{body.pivot[0]:.17g} {body.pivot[1]:.17g} 0"><joint axis="0 0 1"/>'
            f'<inertial pos="{body.centre[0]:.17g} {body.centre[1]:.17g} 0" mass="{body.mass:.17g}" '
            f'diaginertia="{moments}"/>{"".join(sites.get(i, ()))}{_tree(mechanism, i, sites)}</body>'
        )

    return "".join(element(i, body) for i, body in enumerate(mechanism.bodies) if body.parent == parent)


def mjcf(mechanism: Mechanism, h: float, integrator: str, tight: bool) -> str:
    """The mechanism in MuJoCo's language.

    **Arguments:**

    - `mechanism`: bodies, loops, gravity and spring; the torque is applied by `loaded`.
    - `h`: the time step [s].
    - `integrator`: `"Euler"` or `"RK4"`.
    - `tight`: constraints as hard as they go.
    """
    sites: dict[int, list[str]] = {}
    connects, tendon = "", ""
    for i, loop in enumerate(mechanism.loops):
        for side, body, point in (("a", loop.body, loop.point), ("b", loop.other, loop.other_point)):
            sites.setdefault(body, []).append(_site(f"{side}{i}", point))
        connects += f'<connect site1="a{i}" site2="b{i}" {_TIGHT.format(2 * h) if tight else ""}/>'
    if mechanism.spring is not None:
        spring = mechanism.spring
        sites.setdefault(GROUND, []).append(_site("anchor", spring.anchor))
        sites.setdefault(spring.body, []).append(_site("pulled", spring.point))
        tendon = (
            f'<tendon><spatial stiffness="{spring.stiffness:.17g}" springlength="{spring.rest:.17g}">'
            '<site site="anchor"/><site site="pulled"/></spatial></tendon>'
        )
    return (
        f'<mujoco><compiler angle="radian" boundmass="0"/><option timestep="{h:.17g}" integrator="{integrator}" '
        f'gravity="0 {-mechanism.gravity:.17g} 0" iterations="1" ls_iterations="1">'
        '<flag contact="disable" eulerdamp="disable"/></option>'
        f"<worldbody>{''.join(sites.get(GROUND, ()))}{_tree(mechanism, GROUND, sites)}</worldbody>"
        f"<equality>{connects}</equality>{tendon}</mujoco>"
    )


def loaded(mechanism: Mechanism, h: float, integrator: str, tight: bool) -> tuple[Any, Any]:
    """MuJoCo's model and data. **Arguments:** as `mjcf`."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(mjcf(mechanism, h, integrator, tight))
    data = mujoco.MjData(model)
    _restart(model, data, *mechanism.start, mechanism.torque)
    return model, data


def _restart(model: Any, data: Any, q: Array, v: Array, torque: float) -> None:
    import mujoco

    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = q, v
    data.qfrc_applied[0] = torque


def single(mechanism: Mechanism, h: float, steps: int, integrator: str, tight: bool) -> Callable[[], Array]:
    """A run from the start, as a function of nothing that returns the angles. **Arguments:** as `mjcf`, and `steps`."""
    import mujoco

    model, data = loaded(mechanism, h, integrator, tight)
    start = mechanism.start

    def run() -> Array:
        _restart(model, data, *start, mechanism.torque)
        mujoco.mj_step(model, data, steps)
        return data.qpos.copy()

    return run


def batch(
    mechanism: Mechanism, h: float, steps: int, integrator: str, tight: bool, q: Array, v: Array, threads: int
) -> Callable[[], Array]:
    """Runs of a batch (batch, n) by `mujoco.rollout`, which keeps the state of every step.

    **Arguments:** as `single`, and the states to start from and how many threads.
    """
    import mujoco
    from mujoco import rollout

    model, data = loaded(mechanism, h, integrator, tight)
    begin, n = np.hstack([np.zeros((len(q), 1)), q, v]), q.shape[1]
    torques = np.zeros((len(q), steps, n))
    torques[..., 0] = mechanism.torque
    pool = rollout.Rollout(nthread=threads if threads > 1 else 0)
    every = [data, *(mujoco.MjData(model) for _ in range(threads - 1))]
    given = {"control": torques, "control_spec": int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)}
    if not mechanism.torque:
        given = {"nstep": steps}
    return lambda: pool.rollout(model, every, begin, **given)[0][:, -1, 1 : 1 + n]


def warp(
    mechanism: Mechanism, h: float, steps: int, integrator: str, q: Array, v: Array
) -> Callable[[], Array]:
    """The same with tight constraints by MuJoCo Warp, on the CPU in float32: what Newton's `SolverMuJoCo` calls.

    **Arguments:** as `batch`.
    """
    import mujoco_warp
    import warp as wp

    model, data = loaded(mechanism, h, integrator, True)
    wp.config.quiet = True
    with wp.ScopedDevice("cpu"):
        on_device = mujoco_warp.put_model(model)
        on_device.opt.warn_overflow = 0  # it would print a line a step that one iteration is all it has
        state = mujoco_warp.put_data(model, data, nworld=len(q))

    def run() -> Array:
        state.qpos.assign(q.astype(np.float32))
        state.qvel.assign(v.astype(np.float32))
        for _ in range(steps):
            mujoco_warp.step(on_device, state)
        return state.qpos.numpy()

    return run


def mjx(
    mechanism: Mechanism, h: float, steps: int, integrator: str, q: Array, v: Array
) -> Callable[[], Array]:
    """The same with tight constraints by MJX, a batch (batch, n) at once; compiled at its first call.

    **Arguments:** as `batch`.
    """
    import jax
    from mujoco import mjx

    model, data = loaded(mechanism, h, integrator, True)
    on_device, like = mjx.put_model(model), mjx.put_data(model, data)

    def one(q: jax.Array, v: jax.Array) -> jax.Array:
        start = like.replace(qpos=q, qvel=v)
        return jax.lax.fori_loop(0, steps, lambda _, d: mjx.step(on_device, d), start).qpos

    return functools.partial(jax.jit(jax.vmap(one)), q, v)


_SETTINGS = (("tight, Euler", "Euler", True), ("tight, RK4", "RK4", True), ("default, Euler", "Euler", False))


def singles(case: Case, quick: bool) -> Iterator[Single]:
    """The case with hard and with soft constraints."""
    for h, steps in steps_of(case, (1e-3,) if quick else (5e-3, 2e-3, 1e-3, 5e-4)):
        for name, integrator, tight in _SETTINGS:
            make = functools.partial(single, case.mechanism, h, steps, integrator, tight)
            yield Single("MuJoCo", f"{name}, h = {h:.3g}", make, error(case, 1), case.mechanism.drift)


def batches(case: Case, size: int) -> Iterator[Batch]:
    """On one core, and with two threads on two."""
    mechanism, _ = case.moving()
    (q, v), sizes = mechanism.start, steps_of(case, (2e-3, 1e-3))
    starts = np.tile(q, (size, 1)), case.speeds(size)[:, None] * v
    for (name, integrator, tight), (h, _) in itertools.product(_SETTINGS[:2], sizes):
        steps = member_steps(size, 3e5 if integrator == "Euler" else 8e4)
        for threads in (1, 2) if size > 1 else (1,):
            make = functools.partial(batch, mechanism, h, steps, integrator, tight, *starts, threads)
            yield Batch("MuJoCo", f"{name}, h = {h:.3g}", h, steps, make, threads)


def mjx_singles(case: Case, quick: bool) -> Iterator[Single]:
    """MJX, one member."""
    if case.mechanism.spring is not None:
        return
    q, v = (x[None] for x in case.mechanism.start)
    ((h, steps),) = steps_of(case, (1e-3,))
    make = functools.partial(mjx, case.mechanism, h, steps, "Euler", q, v)
    of_tip = error(case, 1)
    measures = (lambda q: of_tip(q[0])), (lambda q: case.mechanism.drift(np.asarray(q[0])))
    yield Single("MJX", f"tight, Euler, h = {h:.3g}", make, *measures)


def mjx_batches(case: Case, size: int) -> Iterator[Batch]:
    """MJX, a batch at once."""
    mechanism, _ = case.moving()
    (q, v), ((h, _),) = mechanism.start, steps_of(case, (1e-3,))
    starts = np.tile(q, (size, 1)), case.speeds(size)[:, None] * v
    steps = member_steps(size, 1.5e5)
    make = functools.partial(mjx, mechanism, h, steps, "Euler", *starts)
    yield Batch("MJX", f"tight, Euler, h = {h:.3g}", h, steps, make)


def warp_singles(case: Case, quick: bool) -> Iterator[Single]:
    """MuJoCo Warp, one member."""
    if case.mechanism.spring is not None:
        return
    q, v = (x[None] for x in case.mechanism.start)
    ((h, steps),) = steps_of(case, (1e-3,))
    make = functools.partial(warp, case.mechanism, h, steps, "Euler", q, v)
    of_tip = error(case, 1)
    measures = (lambda q: of_tip(q[0])), (lambda q: case.mechanism.drift(np.asarray(q[0])))
    yield Single("MuJoCo Warp", f"float32, tight, Euler, h = {h:.3g}", make, *measures)


def warp_batches(case: Case, size: int) -> Iterator[Batch]:
    """MuJoCo Warp, a batch at once."""
    mechanism, _ = case.moving()
    (q, v), ((h, _),) = mechanism.start, steps_of(case, (1e-3,))
    starts = np.tile(q, (size, 1)), case.speeds(size)[:, None] * v
    steps = member_steps(size, 3e4)
    make = functools.partial(warp, mechanism, h, steps, "Euler", *starts)
    yield Batch("MuJoCo Warp", f"float32, tight, Euler, h = {h:.3g}", h, steps, make)
