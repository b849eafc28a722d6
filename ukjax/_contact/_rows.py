"""The contacts of a system at one state: gaps, contact velocities, their rows, and the inverse inertia they feel.

Contact velocities are u = (u_n, u_t) of each contact, the normal one first: u_n the rate of the gap, u_t the slip. They
are linear in v, u = J v + w, and impulses p on the contacts change v by W J^T p. W is the inverse inertia of the
bilateral motion, W = M^-1 - M^-1 A^T (A M^-1 A^T)^+ A M^-1: what its rows hold back is left out, and dependent rows do
no harm. The Delassus operator is G = J W J^T.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import TranslationError, array_function, translate_function
from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._formula._contact_problem import eliminate, invert_matrix
from .._formula._members import Members
from .._misc._errors import InputError
from .._misc._types import as_jax, choose_by_precision, in_full_precision, is_traced, module_for
from .._motion._acceleration_code import AccelerationProgram
from .._motion._model import Model, translate_model
from .._pseudoinverse._kernels import dot
from .._system._constraint import (
    AbstractConstraint,
    AbstractUnilateral,
    DryFriction,
    Unilateral,
    slips,
    unilateral,
)
from .._system._labels import unique_names
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractForwardingSystem, AbstractSystem, TreeInertia
from ._kinds import Instant, KnownKinds, kinds_of, known_kinds, seek_anew, size_of_constraint


@final
class PushedSystem(AbstractForwardingSystem):
    """A system without its contacts, under one more force, and with more inertia.

    - `system`: the system.
    - `push`: the force (n,).
    - `added`: on the diagonal of the mass matrix (n,), if anything.
    """

    system: AbstractSystem
    push: Float[Array, " n"]
    added: Float[Array, " n"] | None = None

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return self.system.bilateral_constraints

    def mass_matrix(self, t: Any, q: Any) -> Array:
        M = self.system.mass_matrix(t, q)
        return M if self.added is None else M + jnp.diag(self.added)

    def tree_inertia(self, t: Any, q: Any) -> TreeInertia | None:
        tree = self.system.tree_inertia(t, q)
        if tree is None or self.added is None:
            return tree
        armature = self.added if tree.armature is None else tree.armature + self.added
        return dataclasses.replace(tree, armature=armature)

    def force(self, t: Any, q: Any, v: Any) -> Array:
        return self.system.force(t, q, v) + self.push


class ContactLayout(NamedTuple):
    """Whose rows are which, known once the contacts are traced.

    - `names`: of the contacts, such as `foot[0]`; no two are equal.
    - `contacts`: of each, whether it has a normal row, and how many tangential ones.
    - `angles`: of each, whether its gap is an angle.
    - `poisson`: of each, whether its restitution is of impulses; none for no such contact.
    - `turning`: of each, how many of its last tangential rows are of angular velocities; none for no such contact.
    - `soft`: of each, whether it is a spring and damper; none for no such contact.
    - `room`: for how many at once time stepping has room; 0 for as many as are usual.
    """

    names: tuple[str, ...]
    contacts: tuple[tuple[bool, int], ...]
    angles: tuple[bool, ...]
    poisson: tuple[bool, ...] = ()
    turning: tuple[int, ...] = ()
    soft: tuple[bool, ...] = ()
    room: int = 0

    @property
    def normals(self) -> np.ndarray:
        """The places of normal rows, of contacts that have such."""
        starts = np.cumsum([0, *(int(n) + t for n, t in self.contacts)])[:-1]
        return np.array([s for s, (n, _) in zip(starts, self.contacts, strict=True) if n], int)

    @property
    def owner(self) -> np.ndarray:
        """The contact of each row (m,)."""
        return np.repeat(np.arange(len(self.contacts)), np.array([int(n) + t for n, t in self.contacts], int))

    @property
    def is_normal(self) -> np.ndarray:
        """Which rows are normal ones (m,)."""
        found = np.zeros(len(self.owner), bool)
        found[self.normals] = True
        return found

    @property
    def has_slip(self) -> np.ndarray:
        """Which contacts have tangential rows (n,)."""
        return np.array([tangents > 0 for _, tangents in self.contacts], bool)

    @property
    def has_gap(self) -> np.ndarray:
        """Which contacts have a normal row (n,): all but dry friction."""
        return np.array([n for n, _ in self.contacts], bool)

    @property
    def is_rigid(self) -> np.ndarray:
        """Which contacts have a gap that stays open (n,)."""
        return self.has_gap & ~np.array(self.soft) if self.soft else self.has_gap


class Coefficients(NamedTuple):
    """Of each contact (n,): e of the law of impact, Coulomb's mu, and the limit of dry friction. Of each row (m,) the
    scale by which its cone is round: contact velocities are as large as that, and forces are told times it. Of each
    contact (n,) stiffness and damping, both zero of a rigid one."""

    restitution: Array
    friction: Array
    limit: Array
    scale: Array
    stiffness: Array
    damping: Array

    def soften(self, h: Array) -> tuple[Array, Array]:
        """C and b over the gap in the middle of a step, by contact (n,); see `_stepping`. Zero of rigid ones."""
        k, d = self.stiffness, self.damping
        resists = jnp.where(k > 0, 0.5 * h * k + d, 1)
        return jnp.where(k > 0, 1 / (h * resists), 0), k / resists


class Kinematics(NamedTuple):
    """Gaps (n,), zero where dry friction has none, and contact velocities (m,)."""

    gap: Array
    u: Array


def _evaluate_unilateral(
    c: AbstractUnilateral, system: AbstractSystem, t: Array, q: Array, v: Array
) -> tuple[Array, Array]:
    """Gaps (k,) and velocities (k, 1 + d) of one constraint; of dry friction no gaps, and (k, 1)."""
    if isinstance(c, DryFriction):
        rates = c.rates(t, q, v)
        return jnp.zeros_like(rates), rates[:, None]
    assert isinstance(c, Unilateral)
    rate_of_q = system.kinematics(t, q, v)
    gap, rate = jax.jvp(c.gaps, (t, q), (jnp.ones_like(t), rate_of_q))
    return gap, jnp.concatenate([rate[:, None], slips(c, gap.size, t, q, v)], axis=1)


@in_full_precision
def kinematics(system: AbstractSystem, t: Array, q: Array, v: Array) -> Kinematics:
    """Gaps and contact velocities."""
    parts = [_evaluate_unilateral(c, system, t, q, v) for c in unilateral(system.constraints)]
    empty = jnp.zeros(0, q.dtype)
    return Kinematics(
        jnp.concatenate([gap for gap, _ in parts] or [empty]),
        jnp.concatenate([u.reshape(-1) for _, u in parts] or [empty]),
    )


Contacts = tuple[AbstractSystem, KnownKinds | None]
"""A system without shapes and what is known of these, or one with them."""


def gaps_and_bends(of: Contacts, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """Gaps (n,), zero of dry friction, and how far slips are from linear in v, beside their size (n,)."""
    at, kinds = Instant(t, q), kinds_of(*of, t, q, v)
    step = 1 + 0.5 * jnp.cos(jnp.arange(v.size, dtype=v.dtype) ** 2)
    gaps = bends = jnp.zeros(sum(len(kind.contacts) for kind in kinds), q.dtype)
    for kind in (x.everywhere() for x in kinds):
        if kind.has_gap:
            gaps = kind.gaps(at, seek_anew(kind, at), gaps)
        c: Any = getattr(kind, "of", None)
        slip = c and (c.rate if isinstance(c, DryFriction) else c.slip)
        if slip is None or getattr(slip, "is_linear", False):
            continue
        count = len(kind.contacts)
        of_v: Any = (
            (lambda v, c=c: c.rates(t, q, v)[:, None])
            if isinstance(c, DryFriction)
            else (lambda v, c=c, n=count: slips(c, n, t, q, v))
        )
        now, more, less = (of_v(x) for x in (v, v + step, v - step))
        size = jnp.sum(jnp.abs(more) + jnp.abs(less) + jnp.abs(now), 1)
        bent = jnp.sum(jnp.abs(more + less - 2 * now), 1) / jnp.where(size > 0, size, 1)
        bends = bends.at[np.array(kind.contacts)].set(bent)
    return gaps, bends


def layout_of(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[ContactLayout, Coefficients]:
    """Whose rows are which, and the coefficients of each contact.

    **Raises:** `InputError` for coefficients whose number is not that of the contacts, and where there are none.
    """
    names, contacts, turning, soft, coefficients = [], [], [], [], []
    told: dict[str, list] = {"angle": [], "impact": []}
    for c in unilateral(system.constraints):
        (k, tangents), dry = size_of_constraint(c, t, q, v), isinstance(c, DryFriction)
        if not k:
            raise InputError(f"'{c.name}' has no contacts: what it returns is empty.")
        if c.names and len(c.names) != k:
            raise InputError(f"'{c.name}' has {k} contacts, but {len(c.names)} names.")
        names += c.names or ([c.name] if k == 1 else [f"{c.name}[{i}]" for i in range(k)])
        contacts += [(not dry, tangents)] * k
        zero, scale = np.zeros((), q.dtype), np.ones((k, int(not dry) + tangents), q.dtype)
        if isinstance(c, DryFriction):
            given = zero, zero, c.limit, zero, zero
        else:
            assert isinstance(c, Unilateral)
            stiffness = zero if c.stiffness is None else c.stiffness
            given = c.restitution, c.sliding_friction, zero, stiffness, c.damping
            if c.slip_scale is not None:
                xp = module_for(c.slip_scale)
                scale = xp.concatenate([scale[:, :1], xp.asarray(c.slip_scale, q.dtype)], axis=1)
        turning += [getattr(c, "turning", 0)] * k
        soft += [getattr(c, "stiffness", None) is not None] * k
        for word, usual in (("angle", False), ("impact", "newton")):
            given_of = getattr(c, word, usual)
            each = given_of if isinstance(given_of, tuple) else (given_of,) * k
            if len(each) != k:
                raise InputError(f"'{c.name}' has {k} contacts, but {len(each)} answers to `{word}`.")
            told[word] += each
        for x in given:
            if x.shape not in ((), (k,)):
                raise InputError(f"'{c.name}' has {k} contacts, but coefficients of shape {x.shape}.")
        xp = module_for(given)
        restitution, friction, limit, *springs = (
            xp.broadcast_to(xp.asarray(x, q.dtype), (k,)) for x in given
        )
        coefficients.append([restitution, friction, limit, scale.reshape(-1), *springs])
    stacked = [module_for(x).concatenate(x) for x in zip(*coefficients, strict=True)]
    stacked = [as_jax(x) for x in stacked or [np.zeros(0, q.dtype)] * 6]
    poisson = tuple(x == "poisson" for x in told["impact"])
    layout = ContactLayout(
        unique_names(names),
        tuple(contacts),
        tuple(told["angle"]),
        poisson if any(poisson) else (),
        tuple(turning) if any(turning) else (),
        tuple(soft) if any(soft) else (),
    )
    return layout, Coefficients(*stacked)


def require_newton(layout: ContactLayout) -> None:
    """Raises `InputError` for contacts whose law of impact time steps do not have."""
    if layout.poisson:
        raise InputError(
            "time steps know Newton's law of impact alone: give impact='newton', or contact='events'."
        )


def require_rigid(layout: ContactLayout) -> None:
    """Raises `InputError` for springs and dampers, which events do not have."""
    if layout.soft:
        raise InputError(
            "contacts with stiffness need contact='steps', dt0=1e-3: events know rigid ones alone."
        )


class ContactState(NamedTuple):
    """The contacts at one state.

    - `gap`: gaps (n,).
    - `u`: contact velocities (m,).
    - `driven`: what of these time makes by itself, u - J v (m,).
    - `J`: their rows, du/dv (m, n_v).
    - `response`: W J^T (n_v, m).
    - `moved`: N W J^T, of q' = N v (n_q, m).
    - `G`: the Delassus operator J W J^T (m, m).
    - `q_rate`: q' (n_q,).
    - `a`: the acceleration of the bilateral motion (n_v,).
    - `rate`: du/dt under that acceleration (m,).
    """

    gap: Array
    u: Array
    driven: Array
    J: Array
    response: Array
    moved: Array
    G: Array
    q_rate: Array
    a: Array
    rate: Array


@in_full_precision
def contact_at(model: Model, t: Array, q: Array, v: Array) -> ContactState:
    """All of the contacts at one state."""
    assert isinstance(model.system, PushedSystem)
    system = model.system.system
    velocities = lambda t, q, v: kinematics(system, t, q, v).u
    gap, u = kinematics(system, t, q, v)
    J = jax.jacfwd(velocities, argnums=2)(t, q, v)
    pushes = jnp.concatenate([jnp.zeros_like(v)[None], J])
    accelerations = jax.vmap(lambda push: with_push(model, push).acceleration(t, q, v))(pushes)
    a, response = accelerations[0], (accelerations[1:] - accelerations[:1]).T
    q_rate = system.kinematics(t, q, v)
    rate = jax.jvp(velocities, (t, q, v), (jnp.ones_like(t), q_rate, a))[1]
    rates = jax.jacfwd(lambda v: system.kinematics(t, q, v))(v)
    G = J @ response
    return ContactState(gap, u, u - J @ v, J, response, rates @ response, 0.5 * (G + G.T), q_rate, a, rate)


def with_push(model: Model, push: Array) -> Model:
    """The model under another force."""
    assert isinstance(model.system, PushedSystem)
    model = in_pieces(model)
    numbers = model.numbers
    if numbers is not None and isinstance(numbers[0], tuple):
        numbers = (numbers[0][0], push, numbers[0][2]), numbers[1]
    return dataclasses.replace(model, system=dataclasses.replace(model.system, push=push), numbers=numbers)


def in_pieces(model: Model) -> Model:
    """The model with the numbers at hand, the push apart: outside of a loop, so that they are cut once."""
    model = model.ready()
    if model.numbers is None or isinstance(model.numbers[0], tuple):
        return model
    own, (first, last) = jnp.asarray(model.numbers[0]), _places_of_push(model, model.code)
    pieces = own[:first], own[first:last], own[last:]
    return dataclasses.replace(model, numbers=(pieces, model.numbers[1])) if first < last else model


def _push(system: AbstractSystem, t: Array, q: Array, push: Array) -> PushedSystem:
    """A system under a push, and with as much more inertia where forces of coordinates are to be taken implicitly."""
    stiff = eqx.filter_eval_shape(system.coordinate_force, t, q, push) is not None
    return PushedSystem(system, push, push if stiff else None)


def _places_of_push(model: Model, code: Any) -> tuple[int, int]:
    """Where the push begins and ends among the numbers of an acceleration's code; nowhere if it is not among them."""
    arrays, rest = eqx.partition((model.system, model.stabilizer), eqx.is_array)
    blank = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), arrays)
    ones = lambda x: np.ones(x.push.shape, x.push.dtype)
    marked = eqx.combine((dataclasses.replace(blank[0], push=ones(blank[0])), blank[1]), rest)
    places = np.flatnonzero(code.numbers(*marked))
    return (int(places[0]), int(places[-1]) + 1) if places.size else (0, 0)


def _code_of_one(
    members: Members, model: Model, solver: dfx.AbstractSolver, t: Array, automatic: bool
) -> tuple[AccelerationProgram | None, Any]:
    """The code of one of the parts of a system that are alike, and of its projection."""

    def shared(x: Any) -> Any:
        if is_traced(x):
            return x[0]
        # What differs is an input of the code. Were it zero or one, it might be taken for a constant.
        x = np.asarray(x)
        return as_jax(np.where(np.all(x == x[:1], axis=0), x[0], 2.0).astype(x.dtype))

    one = members.one
    if len(members) > 1:
        arrays, rest = eqx.partition(one, eqx.is_array)
        one = eqx.combine(jax.tree.map(shared, arrays), rest)
    q, v = (np.zeros(len(x[0]), t.dtype) for x in (members.q, members.v))
    # Not zero: scalar code would take such entries for constants.
    given = dataclasses.replace(
        model, system=_push(one, t, as_jax(q), as_jax(v + 2.0)), code=None, projection=None
    )
    found = translate_model(given, solver, t, as_jax(q), as_jax(v), automatic=automatic)[0]
    return (found.code if found.is_solved else None), found.projection


def _members_of(model: Model) -> list[tuple[Members, Callable[[AbstractSystem], Model]]]:
    """The parts of a system of which there is code, and what makes a model with its numbers of one."""
    if not model.parts:
        return []
    parts: Any = model.system.system.members()  # pyright: ignore[reportAttributeAccessIssue]
    sizes = [(len(x.q[0]), len(x.v[0])) for x in parts]
    each = zip(parts, model.parts, sizes, strict=True)
    return [(x, functools.partial(_model_of_part, model, *codes, of)) for x, codes, of in each]


def _model_of_part(
    model: Model, code: AccelerationProgram, projection: Any, sizes: tuple[int, int], system: AbstractSystem
) -> Model:
    dtype = jax.tree.leaves(eqx.filter(system, eqx.is_array))[0].dtype
    t, q, v = (as_jax(np.zeros(n, dtype)) for n in ((), *sizes))
    pushed = _push(system, t, q, v)
    own = dataclasses.replace(
        model, system=pushed, code=code, projection=projection, parts=(), kinds=None, numbers=None
    )
    return in_pieces(own)


def models_of_members(model: Model) -> list[Members]:
    """The parts of a system of which there is code, each a model with its numbers; for use inside `jit`."""
    return [
        Members((eqx.filter_vmap(make) if len(x) > 1 else make)(x.one), x.q, x.v)
        for x, make in _members_of(model)
    ]


def models_apart(model: Model) -> list[tuple[Model, tuple[int, ...], tuple[int, ...]]]:
    """The same one by one, with the places of their coordinates and velocities, by NumPy: XLA would compile each
    operation on all of them."""
    each = ((x, [make(x[k]) for k in range(len(x))]) for x, make in _members_of(model))
    return [part for x, models in each for part in zip(models, x.q, x.v, strict=True)]


def contact_model(
    system: AbstractSystem,
    formula: AbstractFormula,
    stabilizer: AbstractStabilizer,
    solver: dfx.AbstractSolver,
    state: tuple[Array, Array, Array],
    *,
    automatic: bool,
    implicit: bool = False,
    whole: bool = True,
) -> tuple[Model, str]:
    """The bilateral motion under a push, by scalar code where it can be; and what became of it in words. Not of the
    `whole` too, where parts are enough: those have all that a time step needs."""
    t, q, v = state
    # Not zero: scalar code would take such entries for constants.
    given = as_jax(np.full(v.shape, 2.0, v.dtype))
    kinds = known_kinds(system, t, q, v) if implicit else None
    system = system if kinds is None else system.without_shapes()
    pushed = _push(system, t, q, given) if implicit else PushedSystem(system, given)
    model = Model(pushed, formula, stabilizer, kinds=kinds)
    codes = [_code_of_one(x, model, solver, t, automatic) for x in system.members()] if implicit else []
    if codes and all(code is not None for code, _ in codes):
        model = dataclasses.replace(model, parts=tuple(codes))
        if not (whole and model.system.constraints):
            sizes = [code.program.size for code, _ in model.parts]
            said = f"scalar code of {' and '.join(map(str, sizes))} operations for all parts that are alike"
            return model, said
    model, said = translate_model(model, solver, t, q, v, automatic=automatic)
    if pushed.added is not None:
        model = dataclasses.replace(
            model, system=dataclasses.replace(model.system, added=jnp.zeros_like(given))
        )
    return model, said


# --- What is computed of contacts, by scalar code where there can be such, else on arrays
#
# A part is a plain function, written once for both: of a model, or only of what `contact_at` found at a state.

# On the diagonal, beside its mean. Dependent rows get the least of their forces, to rounding over this; what it leaves
# of the others goes with its cube.
PULL = (1e-9, 1e-4)
PASSES = 3


def _least(
    factor: Callable[[Array], Callable[[Array], Array]], K: Float[Array, "m m"], b: Float[Array, " m"]
) -> Float[Array, " m"]:
    if not b.size:
        return b
    unit, mean = jnp.eye(b.size, dtype=b.dtype), jnp.trace(K) / b.size
    solve = factor(K + choose_by_precision(b.dtype, *PULL) * jnp.where(mean > 0, mean, 1) * unit)
    p = solve(b)
    for _ in range(PASSES - 1):
        p = p + solve(b - dot(K, p))
    return p


class ContactContext(NamedTuple):
    """What parts compute with besides the contacts.

    - `layout`, `coefficients`: of the contacts.
    - `solve`: the least p with K p = b, dependent rows included (proximal point); rows of zeros keep a p of zero.
    """

    layout: ContactLayout
    coefficients: Coefficients
    solve: Callable[[Array, Array], Array]


def _invert(A: Array) -> Callable[[Array], Array]:
    inverse = invert_matrix(A)
    return lambda b: dot(inverse, b)


_by_elimination = functools.partial(_least, eliminate)
_on_arrays = functools.partial(_least, _invert)


def solve_least(K: Array, b: Array) -> Array:
    """`ContactContext.solve`, as written out once, which all parts call."""
    return evaluate_array_part(_by_elimination, K, b)


def evaluate_array_part(
    function: Callable[..., Any], *arrays: Array, otherwise: Callable[..., Any] | None = None
) -> Any:
    """What a part returns that needs arrays only."""
    try:
        return array_function(function, *arrays)(*arrays)
    except TranslationError:  # there would be too many operations
        return (otherwise or function)(*arrays)


@dataclasses.dataclass(frozen=True)
class _OfContacts:
    """A part as a function of the leaves of coefficients, contacts and more.

    - `function`: of `ContactContext`, a `ContactState` and more.
    - `layout`: of the contacts.
    - `tree`: the structure of the leaves.
    """

    function: Callable[..., Any]
    layout: ContactLayout
    tree: Any

    def __call__(self, *leaves: Array) -> Any:
        coefficients, contact, more = jax.tree.unflatten(self.tree, leaves)
        return self.function(ContactContext(self.layout, coefficients, solve_least), contact, *more)


@in_full_precision
def evaluate_contact_part(
    function: Callable[..., Any],
    layout: ContactLayout,
    coefficients: Coefficients,
    contact: ContactState,
    *more: Any,
) -> Any:
    """What a part returns that needs no model."""
    leaves, tree = jax.tree.flatten((coefficients, contact, more))
    on_arrays = lambda *_: evaluate_part_on_arrays(function, layout, coefficients, contact, *more)
    return evaluate_array_part(_OfContacts(function, layout, tree), *leaves, otherwise=on_arrays)


@in_full_precision
def evaluate_part_on_arrays(
    function: Callable[..., Any],
    layout: ContactLayout,
    coefficients: Coefficients,
    contact: ContactState,
    *more: Any,
) -> Any:
    """The same without scalar code: what is asked at a few states need not be written out for each row."""
    return function(ContactContext(layout, coefficients, _on_arrays), contact, *more)


@dataclasses.dataclass(frozen=True)
class OfModel:
    """A part as a function of (system, stabilizer) and arrays.

    - `function`: of a model and arrays.
    - `code`: of the acceleration.
    """

    function: Callable[..., Any]
    code: AccelerationProgram

    def __call__(self, parts: tuple[AbstractSystem, AbstractStabilizer], *arrays: Array) -> Any:
        system, stabilizer = parts
        return self.function(Model(system, UdwadiaKalaba(), stabilizer, self.code), *arrays)


@in_full_precision
def evaluate_model_part(function: Callable[..., Any], model: Model, *arrays: Array) -> Any:
    """What a part returns that needs the model, by scalar code where the acceleration has such."""
    if model.code is not None and model.is_solved:
        try:
            parts = model.system, model.stabilizer
            return translate_function(OfModel(function, model.code), parts, *arrays)(parts, *arrays)
        except TranslationError:  # of gaps and slips, or as there would be too many operations
            pass
    return function(model, *arrays)
