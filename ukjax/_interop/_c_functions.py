"""What of a model can be exported as C: its functions, each of parameters and a state, and its parameters."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import Array

from .._compiler import evaluate_by_code
from .._compiler._tracing import leaf
from .._contact._rows import PushedSystem
from .._formula._servo import Servoed
from .._misc._arguments import call_user_function, require_function
from .._misc._errors import InputError, Untranslatable, unknown_name
from .._misc._types import T
from .._motion._acceleration_code import AccelerationProgram, compile_acceleration
from .._pseudoinverse import GramSchmidt, pinv
from .._run._step import step
from .._system._constraint import require_bilateral
from .._system._drive import DrivenSystem
from .._system._labels import unique_names
from .._system._problem import Problem
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, innermost, names_of
from ..analysis._inputs import MatrixForce, input_matrix_of
from ..analysis._inverse_dynamics import inverse_dynamics
from ..mechanisms import Prismatic
from ..mechanisms._tree import TreeSystem
from ._units import describe_entries, describe_field, force_units

Values = dict[str, Array]

# --- What can be exported


def explain_untranslatable(what: str, make: Callable[[], T], form: str = "C") -> T:
    """What a function makes, or why that has no form in a language."""
    try:
        return make()
    except Untranslatable as error:
        at = f" ({error.at})" if error.at else ""
        raise InputError(f"{what} cannot be written as {form}: {error}{at}.") from error


@final
class Settings:
    """How functions are computed, besides of what.

    - `input_names`: of the inputs that forces are given for; none without `inputs`.

    **Arguments:**

    - `model`: the system and the stabilizer as they are given, with their numbers.
    - `state`: t, q and v.
    - `inputs`, `solver`: see `to_c`.
    - `outputs`: of an FMU, functions of the user's own.
    """

    def __init__(
        self,
        model: tuple[Any, Any],
        state: tuple[Any, Any, Any],
        inputs: Any,
        solver: Any,
        outputs: Sequence["Function"] = (),
    ):
        self._model, self._state, self.inputs, self.solver = model, state, inputs, solver
        self.outputs = tuple(outputs)
        self.code = functools.cache(self._code)
        self.without_contacts = functools.cache(self._without_contacts)
        self.input_names = () if inputs is None else self._matrix_of(model[0])[1]

    def _matrix_of(self, system: AbstractSystem) -> Any:
        t, q, v = self._state
        return input_matrix_of(system, self.inputs, t, q, v.size, every=False)

    @functools.cached_property
    def drives_all(self) -> bool:
        """Whether each velocity has an input of its own, and no constraint rows hold it."""
        (system, _), (t, q, v) = self._model, self._state
        with jax.ensure_compile_time_eval():
            of, _, _ = input_matrix_of(system, self.inputs, t, q, v.size, every=True)
            matrices = [np.asarray(call_user_function("inputs", of, t, x)) for x in (q, q + 0.1)]
        alone = not eqx.filter_eval_shape(constraint_rows, system, t, q, v).names
        return alone and all(np.array_equal(B, np.eye(v.size)) for B in matrices)

    def driven(self, system: AbstractSystem, u: Array | None) -> AbstractSystem:
        """A system under inputs, if there are any."""
        return system if u is None else DrivenSystem(system, MatrixForce(self._matrix_of(system)[0]), u)

    def _without_contacts(self) -> "Settings":
        """Of the system without its contacts, whose inputs are forces on all its velocities."""
        (system, stabilizer), v = self._model, self._state[2]
        with jax.ensure_compile_time_eval():
            free, each = PushedSystem(system, jnp.zeros_like(v)), jnp.eye(v.size, dtype=v.dtype)
            return Settings((free, stabilizer), self._state, each, self.solver)

    def _code(self, driven: bool) -> AccelerationProgram:
        """The scalar code of the acceleration, of the system alone or under inputs."""
        system, stabilizer = self._model
        require_bilateral("the acceleration in C", system.constraints)
        # Other inputs than zero: an array with a zero in it is no parameter.
        u = jnp.full(len(self.input_names), 0.5, self._state[1].dtype) if driven else None
        under = self.driven(system, u)
        make = lambda: compile_acceleration(under, None, stabilizer, *self._state)
        return explain_untranslatable("the acceleration", make)


class ModelState(NamedTuple):
    """What functions are computed of: a system with parameters that C gives, and its state."""

    system: AbstractSystem
    stabilizer: AbstractStabilizer
    t: Array
    q: Array
    v: Array
    how: Settings

    def by_code(self, part: Callable[[AccelerationProgram], Any], u: Array | None = None) -> Any:
        """The value of a part of the acceleration's scalar code."""
        code, at = self.how.code(u is not None), (self.t, self.q, self.v)
        system = self.how.driven(self.system, u)
        near = jnp.full_like(self.t, jnp.inf)  # of a state that is no stage of a step
        return part(code)(code.numbers(system, self.stabilizer), *at, *code.applied(system, *at), near)

    def without_contacts(self) -> "ModelState":
        """The same of the system without its contacts, whose inputs are forces on all its velocities."""
        system = PushedSystem(self.system, jnp.zeros_like(self.v))
        return self._replace(system=system, how=self.how.without_contacts())

    def own_outputs(self) -> list[tuple[str, Array]]:
        """The user's own outputs, with their names."""
        return [
            (of.name if x == "result" else f"{of.name}_{x}", jnp.ravel(jnp.asarray(y, self.q.dtype)))
            for of in self.how.outputs
            for x, y in of.compute(self).items()
        ]

    def input_force(self, u: Array | None) -> Array:
        """The generalized force of inputs."""
        if u is None:
            return jnp.zeros_like(self.v)
        driven: Any = self.how.driven(self.system, u)
        return driven.apply(self.t, self.q, self.v, u)


def _acceleration(given: ModelState, u: Array | None = None) -> Values:
    """The acceleration a = v' of M a = Q + A^T lambda, A a = b."""
    unsolved = given.how.code(u is not None).unsolved
    if unsolved:
        raise Untranslatable(unsolved)
    return {"a": given.by_code(lambda code: code.stage, u)}


def _constraints(given: ModelState) -> Values:
    """The rows A v' = b of the constraints, and by how much positions and velocities are off."""
    rows = given.by_code(lambda code: code.equations).rows
    errors = {"position_error": rows.position_error, "velocity_error": rows.velocity_error}
    return {"A": rows.A, "b": rows.b, **errors}


@jax.custom_jvp
def _with_derivative(multipliers: Array, ideal: Array, A: Array) -> Array:
    """Multipliers with A^T lambda = ideal, whose scalar code has no derivative; A has the rows that are kept."""
    return multipliers


@_with_derivative.defjvp
def _with_derivative_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (multipliers, _, A), (_, d_ideal, d_A) = primals, tangents
    return multipliers, (d_ideal - d_A.T @ multipliers) @ pinv(A, GramSchmidt()).matrix


def observe(given: ModelState, u: Array | None = None) -> Values:
    """What scalar code tells of a state, with derivatives of the multipliers too."""
    if unsolved := given.how.code(u is not None).unsolved:
        raise Untranslatable(unsolved)
    observed = dict(given.by_code(lambda code: code.observed, u))
    if observed["position_error"].size:
        equations = given.by_code(lambda code: code.equations, u)
        ideal = observed["constraint_force"] - equations.c
        A = jnp.where(observed["kept"][:, None], equations.rows.A, 0.0)
        observed["multipliers"] = _with_derivative(observed["multipliers"], ideal, A)
    return observed


def _forces(given: ModelState, u: Array | None = None) -> Values:
    """The multipliers lambda of M a = Q + A^T lambda, A a = b, and the generalized force of the constraints."""
    observed = observe(given, u)
    return {"multipliers": observed["multipliers"], "force": observed["constraint_force"]}


def _mass_matrix(given: ModelState) -> Values:
    """The mass matrix M, of the kinetic energy v^T M v / 2."""
    return {"M": evaluate_by_code(_mass_matrix_of, given.system, given.t, given.q)}


def _mass_matrix_of(system: AbstractSystem, t: Array, q: Array) -> Array:
    return system.mass_matrix(t, q)


def _energy(given: ModelState) -> Values:
    """The mechanical energy T + V [J]."""
    energy = given.system.energy(given.t, given.q, given.v)
    if energy is None:
        raise InputError(
            f"{type(innermost(given.system)).__name__} says nothing of its energy: there is none to write."
        )
    return {"energy": energy}


def _inverse_dynamics(given: ModelState, a: Array) -> Values:
    """The least inputs u of M a = Q + B u + A^T lambda for an acceleration a with A a = b, and the multipliers lambda."""
    at = given.t, given.q, given.v
    if isinstance(given.system, TreeSystem) and given.how.drives_all:
        return {"u": evaluate_by_code(TreeSystem.required_force, given.system, *at, a)}
    found = inverse_dynamics(given.system, a, *at, inputs=given.how.inputs, throw=False)
    return {"u": found.efforts, "multipliers": found.multipliers}


def _servo(given: ModelState) -> Values:
    """The inputs u of M a = Q + B u + A^T lambda, A a = b that make it follow its servo constraints."""
    if not isinstance(given.system, Servoed):
        raise InputError("servo is a function of models under servo control: see `with_servo`.")
    return {"u": given.system.report(given.t, given.q, given.v).u}


def _step(given: ModelState, dt: Array, u: Array | None = None) -> Values:
    """The state after one step, projected onto the constraints."""
    q, v = step(given.how.driven(given.system, u), given.t, given.q, given.v, dt, solver=given.how.solver)
    return {"q_next": q, "v_next": v}


FUNCTIONS: dict[str, Callable[..., Values]] = {
    "acceleration": _acceleration,
    "constraints": _constraints,
    "forces": _forces,
    "mass_matrix": _mass_matrix,
    "energy": _energy,
    "inverse_dynamics": _inverse_dynamics,
    "servo": _servo,
    "step": _step,
}
_JACOBIAN = "_jacobian"


class Function(NamedTuple):
    """One function to export."""

    name: str  # without that of the model
    about: str  # a sentence
    further: dict[str, np.ndarray]  # what it takes after t, q and v, with a value of each
    compute: Callable[..., Values]  # its results


def wrap_function(fn: Callable[..., Any]) -> Function:
    """A user's function of (system, t, q, v) and of arrays whose defaults say how large they are."""
    name = getattr(fn, "__name__", "function")
    parameters = list(inspect.signature(fn).parameters.values())[4:]
    if open_ends := [x.name for x in parameters if x.default is x.empty]:
        raise InputError(
            f"{name} takes {open_ends[0]} without a default: C needs to know how large it is, as in "
            f"{open_ends[0]}=jnp.zeros(3)."
        )
    require_function(name, fn, "system, t, q, v")

    def compute(given: ModelState, *further: Array) -> Values:
        found = call_user_function(name, fn, given.system, given.t, given.q, given.v, *further)
        return dict(found) if isinstance(found, Mapping) else {"result": found}

    about = (inspect.getdoc(fn) or f"{name}, a function of your own.").splitlines()[0]
    further = {make_identifier(x.name): np.asarray(x.default, float) for x in parameters}
    return Function(make_identifier(name), about, further, compute)


def _differentiate(function: Function) -> Function:
    """The derivatives of all results by coordinates, by velocities and by what else it takes."""

    def compute(given: ModelState, *further: Array) -> Values:
        def values(q: Array, v: Array, *further: Array) -> Values:
            return function.compute(given._replace(q=q, v=v), *further)

        names = ("q", "v", *function.further)
        by = jax.jacfwd(values, tuple(range(len(names))))(given.q, given.v, *further)
        return {f"{x}_{name}": J for x, all_of in by.items() for name, J in zip(names, all_of, strict=True)}

    about = f"Derivatives of the results of {function.name} by q, v and what else it takes."
    return Function(function.name + _JACOBIAN, about, function.further, compute)


def function_of(chosen: Any, velocities: int, inputs: int) -> Function:
    """The function of a name, or a user's own."""
    if isinstance(chosen, Function):
        return chosen
    if callable(chosen):
        return wrap_function(chosen)
    name = str(chosen)
    base = name.removesuffix(_JACOBIAN)
    if base not in FUNCTIONS:
        raise unknown_name("function", name, [*FUNCTIONS, *(f"{x}{_JACOBIAN}" for x in FUNCTIONS)])
    compute = FUNCTIONS[base]
    sizes = {"a": np.zeros(velocities), "dt": np.asarray(1e-3)} | ({"u": np.zeros(inputs)} if inputs else {})
    further = {x: sizes[x] for x in list(inspect.signature(compute).parameters)[1:] if x in sizes}
    function = Function(base, inspect.getdoc(compute) or "", further, compute)
    return _differentiate(function) if base != name else function


# --- The parameters of a model


class Parameter(NamedTuple):
    """A number that C gives: what it is called, what it is by default, its unit, and what it is, as far as is known."""

    name: str
    default: float
    unit: str = ""
    about: str = ""


_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true
false i NAN INFINITY class namespace new template this operator"""


def make_identifier(text: str) -> str:
    """A text as a name in C: none of the language, nor of those that functions give their own numbers."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "x"
    name = f"x{name}" if name[0].isdigit() else name
    return f"{name}_" if name in _KEYWORDS.split() or re.fullmatch(r"[vpabx]\d+", name) else name


_CONTAINERS = ("mechanism", "system", "law")  # whose names say nothing of what is in them


def _locate(path: Sequence[Any], root: Any) -> tuple[str, Any, str]:
    """What an array of (system, stabilizer) is called, by names of bodies, joints and loads where there are such, the
    object that has it as a field, or in one, and the field's name."""
    words, owner, field, at = ["stabilizer"] if path[0].idx else list[str](), None, "", root[path[0].idx]
    for key in path[1:]:
        if isinstance(key, GetAttrKey):
            owner, field, at = at, key.name, getattr(at, key.name)
            words.append(field)
        elif isinstance(key, SequenceKey | DictKey):
            index = key.idx if isinstance(key, SequenceKey) else key.key
            at = at[index]
            own = getattr(at, "name", None)
            if isinstance(own, str) and own:
                words[-1:] = [own]  # in place of "bodies"
            else:
                words.append(str(index))
    return make_identifier("_".join(x for x in words if x not in _CONTAINERS)), owner, field


def input_units(problem: Problem, inputs: Any) -> dict[str, str]:
    """The names of the motors, with the units of their efforts where they are known."""
    if inputs is None:
        return {}
    system, state = problem.system, (jnp.asarray(problem.t0, problem.q0.dtype), problem.q0)
    _, names, actuators = input_matrix_of(system, inputs, *state, problem.v0.size, every=False)
    joints = {x.name: x for x in getattr(innermost(system), "joints", ())}
    on = {x.name: joints.get(x.joint) if isinstance(x.joint, str) else x.joint for x in actuators}
    known = dict(zip(names_of(system, problem.q0, problem.v0)[1], force_units(system), strict=False))
    known |= {x: "N" if isinstance(of, Prismatic) else "N m" for x, of in on.items()}
    return {x: known.get(x, "") for x in names}


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray)


def parameters_of(model: Any) -> tuple[list[Parameter], Callable[[Sequence[Array]], Any]]:
    """The numbers of a pytree that change nothing but values, and the pytree with others in their place."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(eqx.filter(model, _is_array))
    parameters, places = list[Parameter](), list[list[int | None]]()
    known = dict[int, list[int | None]]()  # a control law, for one, has arrays of the system again
    for path, x in leaves:
        if id(x) in known:
            places.append(known[id(x)])
            continue
        of, values, (name, owner, field) = leaf(x, x.dtype), np.asarray(x).reshape(-1), _locate(path, model)
        about, unit = describe_field(owner, field)
        of_joints = describe_entries(owner, field, model[0])
        where = list[int | None]()
        for k, index in enumerate(np.ndindex(x.shape)):
            where.append(len(parameters) if of.varying[k] else None)
            if of.varying[k]:
                entry = f"entry {', '.join(map(str, index))}" if index else ""
                of_entry, of_unit = of_joints[k] if of_joints else (entry, unit)
                said = ", ".join(x for x in (f"{field}: {about}" if about else field, of_entry) if x)
                called = "_".join([name, *([of_entry] if of_joints else map(str, index))])
                parameters.append(Parameter(called, float(values[k]), of_unit, said))
        places.append(where)
        known[id(x)] = where
    names = unique_names([make_identifier(x.name) for x in parameters])
    parameters = [x._replace(name=make_identifier(name)) for name, x in zip(names, parameters, strict=True)]

    def with_values(values: Sequence[Array]) -> Any:
        def put(x: Any, where: Sequence[int | None]) -> Any:
            if all(i is None for i in where):
                return x
            flat = np.asarray(x).reshape(-1)
            entries = [flat[k] if i is None else values[i] for k, i in enumerate(where)]
            return jnp.stack([jnp.asarray(y, x.dtype) for y in entries]).reshape(x.shape)

        given = [put(x, where) for (_, x), where in zip(leaves, places, strict=True)]
        return eqx.combine(jax.tree.unflatten(tree, given), model)

    return parameters, with_values
