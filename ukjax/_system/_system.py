"""What the user writes of a system: M(t, q) a = Q(t, q, v) + constraint force, and its constraints."""

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._misc._arguments import all_of, real_array, require_function
from .._misc._display import html_of
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, MassMatrix, Multipliers, Time, Velocities, module_for
from ._constraint import AbstractConstraint, AbstractUnilateral, as_constraints, bilateral
from ._labels import Labels, labels_of, title_of

# --- The mass matrix of a kinematic tree, in the form in which it is factored in proportion to its size


@final
class TreeInertia(eqx.Module):
    """M = sum J_i^T I_i J_i + diag(a) of a kinematic tree, without its n^2 entries (Featherstone 2008, 6.2 and 7.2).

    Each velocity k moves all that lies behind it in the tree by v_k times a twist about a point of its own. Twists are
    angular part first. All is in world axes or, where `turns` are given, in axes of the velocity, which may turn with
    what it moves: its twist and its inertia are then constants."""

    # `axes`: the twist of each velocity about its point, (angular, linear) (n, 6).
    axes: Array | np.ndarray  # of expressions, where scalar code is made
    # `inertia`: of what moves with velocity k but with none behind it, about the point of k (n, 6, 6),
    # symmetric.
    inertia: Array | np.ndarray
    # `arms`: from the point of the velocity before k to that of k, in axes of the former; for the first ones
    # from the origin [m] (n, 3).
    arms: Array | np.ndarray
    parents: tuple[int, ...] = eqx.field(static=True)  # the velocity before each; -1 for the ground
    # `armature`: a, what each velocity moves besides, such as the rotor of a geared motor (n,); None for
    # nothing.
    armature: Array | np.ndarray | None = None
    # `turns`: the axes of each velocity in those of the velocity before it (n, 3, 3).
    turns: Array | np.ndarray | None = None
    # `frames`: the axes of each in those of the world (n, 3, 3), if `turns` are given.
    frames: Array | np.ndarray | None = None

    def outwards(self) -> list[int]:
        """The velocities, each after that before it."""
        found: list[int] = []
        reached = {-1}
        while len(found) < len(self.parents):
            new = [k for k, parent in enumerate(self.parents) if parent in reached and k not in reached]
            found += new
            reached.update(new)
        return found

    def _on_path(self) -> Bool[np.ndarray, "n n"]:
        """Whether velocity k moves what moves with velocity i."""
        found = np.eye(len(self.parents), dtype=bool)
        for i in self.outwards():
            if self.parents[i] >= 0:
                found[i] |= found[self.parents[i]]
        return found

    def dense(self) -> Float[Array, "... n n"]:
        """The mass matrix (n, n), by composite bodies; or several, where all arrays have further axes in front."""
        if self.frames is not None:
            return self._in_world_axes().dense()
        xp = module_for(self.axes, self.inertia, self.arms)
        moves = self._on_path().astype(self.axes.dtype)
        points = moves @ xp.asarray(self.arms)
        arm = points[..., None, :] - points[..., None, :, :]  # [i, k]: from the point of k to that of i
        axes = xp.asarray(self.axes)[..., None, :, :]
        turn, slide = (xp.broadcast_to(x, arm.shape) for x in xp.split(axes, 2, axis=-1))
        J = moves[:, :, None] * xp.concatenate([turn, slide + xp.cross(turn, arm)], axis=-1)
        torque, force = xp.split(xp.einsum("...iab,...ikb->...ika", xp.asarray(self.inertia), J), 2, axis=-1)
        composite = xp.sum(xp.concatenate([torque + xp.cross(arm, force), force], axis=-1), axis=-3)
        lower = xp.einsum("...kja,...ka->...kj", J, composite)
        unit = np.eye(len(self.parents), dtype=lower.dtype)
        bodies = lower + xp.swapaxes(lower, -1, -2) - lower * unit
        return bodies if self.armature is None else bodies + xp.asarray(self.armature)[..., None] * unit

    def _in_world_axes(self) -> "TreeInertia":
        xp = module_for(self.axes, self.inertia, self.arms, self.frames)
        R = xp.asarray(self.frames)
        ground = xp.broadcast_to(xp.eye(3, dtype=R.dtype), R[..., :1, :, :].shape)
        before = xp.concatenate([R, ground], axis=-3)[..., np.array(self.parents), :, :]
        turned = lambda R, x: xp.einsum("...kab,...kb->...ka", R, x)
        axes = [turned(R, x) for x in xp.split(xp.asarray(self.axes), 2, axis=-1)]
        o = xp.zeros_like(R)
        both = xp.concatenate([xp.concatenate([R, o], axis=-1), xp.concatenate([o, R], axis=-1)], axis=-2)
        inertia = xp.einsum("...kab,...kbc,...kdc->...kad", both, xp.asarray(self.inertia), both)
        arms = turned(before, xp.asarray(self.arms))
        return TreeInertia(xp.concatenate(axes, axis=-1), inertia, arms, self.parents, self.armature)


# --- Systems


class _Constrained:  # no dataclass: of one, type checkers would take the field for an argument of constructors
    constraints: Any


class AbstractSystem(_Constrained, eqx.Module):
    """A mechanical system M(t, q) a = Q(t, q, v) under constraints.

    Subclass it with the two methods below and `constraints`, a tuple (a field or a property). Parameters kept as array
    fields can be differentiated. `kinematics`, `energy`, `nonideal_force`, `friction_force`, `coordinate_force` are
    optional.

    So are these attributes, each a field, a property or a method: `labels`, names of the coordinates (by default `q[0]`,
    ...), and `velocity_labels`, of the velocities (by default the same); `units`, of the coordinates, each `"m"`, `"rad"`
    or `""`, by which plots make panels; `points(t, q)`, named places; `energies(t, q, v)`, the energy by parts. Plots,
    tables, files and reports use them.

    A system may have states z of first order besides, such as voltages: `state_labels` names them. They are the last
    entries of v, and their rates z' are the last of the force: M is 1 there, and `kinematics` leaves them out.
    """

    if not TYPE_CHECKING:
        constraints: eqx.AbstractVar[tuple[AbstractConstraint, ...]]

    @abc.abstractmethod
    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        """The symmetric mass matrix M (n, n), [kg], [kg m^2], ... as the velocities ask."""

    @abc.abstractmethod
    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """All impressed generalized forces Q (n,), Coriolis and gravity included [N], [N m], ..."""

    def tree_inertia(self, t: Time, q: Coordinates) -> TreeInertia | None:
        """The mass matrix of a kinematic tree, to solve with in proportion to its size; None (the default) of others."""
        return None

    @property
    def bilateral_constraints(self) -> tuple[AbstractConstraint, ...]:
        """The constraints that hold in both directions."""
        return bilateral(self.constraints)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The velocities of parts that neither inertia nor constraints join, where there are several; else none."""
        return ()

    def without_shapes(self) -> "AbstractSystem":
        """The system without contacts of shapes, and without what it looks like."""
        return self

    def members(self) -> tuple[Any, ...]:
        """Parts that nothing but contacts joins to each other, those alike together (`Members`), where there are several;
        else none."""
        return ()

    @property
    def force_beside_members(self) -> Callable[[Time, Coordinates, Velocities], Forces] | None:
        """What of Q none of the `members` has, as it may act on several of them, or depend on several."""
        return None

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        """The part of Q by springs and dampers of coordinates (n,), implicit in time stepping; None if unknown."""
        return None

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        """The rate q' = N(t, q) v of the coordinates (n_q,); by default v itself. Override it for quasi-velocities, such
        as an angular velocity that turns a quaternion (Orsino 2017, section 2)."""
        return v

    @property
    def _has_own_kinematics(self) -> bool:
        """Whether v need not be q'."""
        return type(self).kinematics is not AbstractSystem.kinematics

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""] | None:
        """The total mechanical energy [J], or None where it is not defined (the default)."""
        return None

    def nonideal_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        """The force c (n,) whose work in every virtual displacement is that of the non-ideal constraint
        force (Liu 2015, eqs. (12)-(13)), or None for ideal constraints (the default)."""

    def friction_force(
        self, t: Time, q: Coordinates, v: Velocities, multipliers: Multipliers
    ) -> Forces | None:
        """A part of the non-ideal force (n,) that depends on the multipliers (m,), as Coulomb friction in joints does;
        None (the default) if there is none.

        They are those of the motion with this force, M a = Q + c + A^T lambda with c = friction_force(.., lambda): a
        fixed point. The row of a multiplier is that of `constraint_rows`; where rows depend on others, multipliers and
        friction are those of least norm. Where the multipliers answer a change of friction with a larger one (jamming),
        or there is no fixed point, the force is NaN. Needs M > 0, and excludes unilateral constraints, whose friction is
        an argument of theirs. Friction at rest is to be a smooth function of v, as mu |lambda| tanh(v / v_s): it creeps.

        **Arguments:**

        - `t`, `q`, `v`: time [s], coordinates (n_q,) and velocities (n,).
        - `multipliers`: lambda (m,), one a row [N], [N m], ... as the rows ask.
        """

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The bodies as named polylines (k, 2) or (k, 3) [m], for `Trajectory.animate`; by default none."""
        return {}

    def _repr_html_(self) -> str:
        return html_of(self)


class AbstractForwardingSystem(AbstractSystem):
    """A system around another one, which answers for all that is not overridden."""

    system: eqx.AbstractVar[AbstractSystem]  # the other one

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return self.system.constraints

    @property
    def points(self) -> Callable[[Time, Coordinates], dict[str, Array]] | None:
        """The named points, where the system has such."""
        return getattr(self.system, "points", None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates, where the system has such."""
        return getattr(self.system, "labels", ())

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        """The names of the velocities, where the system has such."""
        return getattr(self.system, "velocity_labels", ())

    @property
    def state_labels(self) -> tuple[str, ...]:
        """The names of the states of first order, where the system has such."""
        return states_of(self.system)

    @property
    def title(self) -> str:
        """What runs are called."""
        return title_of(self.system)

    @property
    def energies(self) -> Callable[[Time, Coordinates, Velocities], dict[str, Array]] | None:
        """The energy by parts, where the system tells it."""
        return getattr(self.system, "energies", None)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        return self.system.blocks

    def without_shapes(self) -> AbstractSystem:
        return eqx.tree_at(lambda x: x.system, self, self.system.without_shapes())

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return self.system.mass_matrix(t, q)

    def tree_inertia(self, t: Time, q: Coordinates) -> TreeInertia | None:
        return self.system.tree_inertia(t, q)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.system.force(t, q, v)

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        return self.system.coordinate_force(t, q, v)

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        return self.system.kinematics(t, q, v)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""] | None:
        return self.system.energy(t, q, v)

    def nonideal_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        return self.system.nonideal_force(t, q, v)

    def friction_force(
        self, t: Time, q: Coordinates, v: Velocities, multipliers: Multipliers
    ) -> Forces | None:
        return self.system.friction_force(t, q, v, multipliers)

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return self.system.drawing(t, q)


def innermost(system: Any) -> Any:
    """The system that others are made around, as the mechanism under servo control; any other one itself."""
    while isinstance(system, AbstractForwardingSystem):
        system = system.system
    return system


def has_quasi_velocities(system: AbstractSystem) -> bool:
    """Whether `kinematics` is the system's own, so that v need not be q'."""
    return innermost(system)._has_own_kinematics


def states_of(system: Any) -> tuple[str, ...]:
    """The names of a system's states of first order, which are the last entries of v; none of most systems."""
    return tuple(getattr(system, "state_labels", ()))


def require_sizes(system: AbstractSystem, n_q: int, n: int) -> None:
    """**Raises:** `InputError` if coordinates and velocities differ in number and the system does not say how."""
    if n_q != n and not has_quasi_velocities(system):
        raise InputError(
            f"q has {n_q} entries and v has {n}; they differ only where the system overrides `kinematics`."
        )


def require_no_friction(what: str, system: AbstractSystem) -> None:
    """Raises `InputError` where forces are to be known before the multipliers are."""
    while isinstance(system, AbstractForwardingSystem) and (
        type(system).friction_force is AbstractForwardingSystem.friction_force
    ):
        system = system.system
    if isinstance(system, System):
        frictionless = system.friction_force_ is None
    else:
        frictionless = type(system).friction_force is AbstractSystem.friction_force
    if not frictionless:
        raise InputError(
            f"{what} does not know a friction_force, which depends on the inputs it looks for: give the friction as a "
            "nonideal_force(t, q, v), or leave it out."
        )


def names_of(system: AbstractSystem, q: Array, v: Array) -> Labels:
    """What the coordinates and velocities of a system are called."""
    return labels_of(system, q.shape[-1], v.shape[-1], quasi=has_quasi_velocities(system))


@final
class System(AbstractSystem):
    """A system from functions or constants, without writing a class.

    **Arguments:**

    - `mass_matrix`: M(t, q) (n, n), or a constant array.
    - `force`: Q(t, q, v) (n,), or a constant array.
    - `constraints`: any of `Holonomic`, `Nonholonomic`, `AccelerationConstraint`, `Unilateral`, `DryFriction`.
    - `energy`: E(t, q, v) [J], if it is to be reported.
    - `nonideal_force`: c(t, q, v) (n,) of non-ideal constraints (Liu 2015, eqs. (12)-(13)).
    - `friction_force`: c(t, q, v, multipliers) (n,), friction that depends on the constraint forces: see
      `AbstractSystem.friction_force`.
    - `kinematics`: q' = N(t, q) v for quasi-velocities; by default q' = v.
    - `labels`: names of the coordinates; by default `q[0]`, ...
    - `states`: names of states z of first order besides, such as the voltages of a circuit. `force`, `energy`,
      `nonideal_force` and `friction_force` are then functions of (t, q, v, z) (and the multipliers). In runs z is the
      end of v: `v0` is (v, z), and `Trajectory.states` has them by name. What else takes v, as constraints and events do,
      finds z behind the n velocities; constraints must not depend on it.
    - `state_rate`: z' = g(t, q, v, z), a function that returns one rate for each state.
    """

    mass_matrix_: Callable[[Time, Coordinates], Array] | Array
    force_: Callable[..., Array] | Array
    constraints: tuple[AbstractConstraint, ...]
    energy_: Callable[..., Array] | None
    nonideal_force_: Callable[..., Array] | None
    friction_force_: Callable[..., Array] | None
    kinematics_: Callable[[Time, Coordinates, Velocities], Array] | None
    state_rate_: Callable[[Time, Coordinates, Velocities, Array], Array] | None
    labels: tuple[str, ...] = eqx.field(static=True)
    state_labels: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        mass_matrix: Callable[[Time, Coordinates], Array] | Array,
        force: Callable[..., Array] | Array,
        constraints: Sequence[AbstractConstraint | AbstractUnilateral] = (),
        *,
        energy: Callable[..., Array] | None = None,
        nonideal_force: Callable[..., Array] | None = None,
        friction_force: Callable[..., Array] | None = None,
        kinematics: Callable[[Time, Coordinates, Velocities], Array] | None = None,
        labels: tuple[str, ...] | list[str] = (),
        states: tuple[str, ...] | list[str] = (),
        state_rate: Callable[[Time, Coordinates, Velocities, Array], Array] | None = None,
    ):
        if bool(states) != (state_rate is not None):
            raise InputError("states and state_rate belong together: names of states z, and their rates z'.")
        of_state = "t, q, v, z" if states else "t, q, v"
        for what, fn, takes in (
            ("the mass matrix", mass_matrix if callable(mass_matrix) else None, "t, q"),
            ("the force", force if callable(force) else None, of_state),
            ("energy", energy, of_state),
            ("nonideal_force", nonideal_force, of_state),
            ("friction_force", friction_force, f"{of_state}, multipliers"),
            ("kinematics", kinematics, "t, q, v"),
            ("state_rate", state_rate, of_state),
        ):
            if fn is not None:
                require_function(what, fn, takes)
        self.mass_matrix_ = (
            mass_matrix if callable(mass_matrix) else real_array("the mass matrix", mass_matrix)
        )
        self.force_ = force if callable(force) else real_array("the force", force)
        self.constraints = as_constraints(constraints)
        self.energy_ = energy
        self.nonideal_force_ = nonideal_force
        self.friction_force_ = friction_force
        self.kinematics_ = kinematics
        self.state_rate_ = state_rate
        self.labels = tuple(labels)
        self.state_labels = all_of("states", states, str, "'voltage'")

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        """The names of the velocities, where they are those of the coordinates, and of the states behind them."""
        known = self.labels and self.kinematics_ is None
        return (*self.labels, *self.state_labels) if known and self.state_labels else ()

    def _split(self, v: Velocities) -> tuple[Array, ...]:
        """v; and z, if there are states."""
        n = v.size - len(self.state_labels)
        return (v[:n], v[n:]) if self.state_labels else (v,)

    def _pad(self, force: Array | None) -> Array | None:
        """A force with zeros for the states."""
        k = len(self.state_labels)
        return force if force is None or not k else jnp.concatenate([force, jnp.zeros(k, force.dtype)])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        M = self.mass_matrix_(t, q) if callable(self.mass_matrix_) else self.mass_matrix_
        if not self.state_labels:
            return M
        M, k = jnp.asarray(M), len(self.state_labels)
        return jnp.pad(M, (0, k)) + jnp.pad(jnp.eye(k, dtype=M.dtype), (len(M), 0))

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        own = self._split(v)
        Q = self.force_(t, q, *own) if callable(self.force_) else self.force_
        if self.state_rate_ is None:
            return Q
        rates = real_array("what state_rate returns", self.state_rate_(t, q, *own))
        if rates.shape != own[1].shape:
            raise InputError(
                f"state_rate returned shape {rates.shape}; with {len(own[1])} states it must be {own[1].shape}."
            )
        return jnp.concatenate([jnp.asarray(Q).astype(rates.dtype), rates])

    @property
    def _has_own_kinematics(self) -> bool:
        return self.kinematics_ is not None or bool(self.state_labels)

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        v = self._split(v)[0]
        return v if self.kinematics_ is None else self.kinematics_(t, q, v)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""] | None:
        return None if self.energy_ is None else self.energy_(t, q, *self._split(v))

    def nonideal_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        c = None if self.nonideal_force_ is None else self.nonideal_force_(t, q, *self._split(v))
        return self._pad(c)

    def friction_force(
        self, t: Time, q: Coordinates, v: Velocities, multipliers: Multipliers
    ) -> Forces | None:
        if self.friction_force_ is None:
            return None
        return self._pad(self.friction_force_(t, q, *self._split(v), multipliers))
