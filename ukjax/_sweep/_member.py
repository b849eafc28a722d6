"""One run of a sweep as a function of its parameters, traced once."""

import dataclasses
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array

from .._misc._arguments import number_array
from .._misc._errors import InputError, require_known, unknown_name
from .._misc._jax_programs import fingerprint, trace_program
from .._run._contact_common import BY_STEPS
from .._run._results import with_end
from .._run._simulate import simulate
from .._system._problem import Problem
from ._names import Build, RunSpec, points_of, require_name
from ._outputs import OUTCOMES, FinishedRun, NamedOutput, compute_outputs, description, has_succeeded, outcome
from ._samples import inner_dims

Values = dict[str, Array]
RESULT = "result"
_SUCCESSFUL, _DIVERGED = (list(OUTCOMES).index(name) for name in ("successful", "diverged"))


class Variable(NamedTuple):
    """What one run gives under one name: inner dimensions and shape, type, unit, and whether failure keeps it."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    units: str
    kept: bool = False


@final
class Member(eqx.Module):
    """One run of a sweep."""

    build: Build  # from values of the parameters to what is run
    outputs: dict[str, NamedOutput]  # what to keep, by name, of a run of a problem
    optional: bool  # whether outputs that a system does not define are left out
    gradients: tuple[str, ...]  # names of outputs to differentiate by every parameter
    options: dict[str, Any]  # of `simulate`
    of_function: bool  # whether the model returns arrays, no problem

    def integrate(self, problem: Problem, spec: RunSpec) -> FinishedRun:
        """The run that a specification describes."""
        options: dict[str, Any] = self.options
        if options["contact"] not in BY_STEPS:  # which are equal, and have derivatives of their own
            options = options | {"adjoint": dfx.ForwardMode()}
        given = {"formula": spec.formula, "stabilizer": spec.stabilizer}
        trajectory = simulate(spec.system, spec.q0, spec.v0, **given, **options)
        points = points_of(problem, spec.system)
        known = dataclasses.replace(problem, system=spec.system, q0=spec.q0, v0=spec.v0, points=points)
        trajectory = dataclasses.replace(trajectory, problem=known, name=problem.name)
        return FinishedRun(trajectory, spec, with_end(trajectory))

    def observe(self, values: Values) -> tuple[Values, Array]:
        """All outputs of one run as they are, and the code of its outcome."""
        made: Any = self.build(values)
        if not self.of_function:
            run = self.integrate(*made)
            return compute_outputs(run, self.outputs, self.optional), outcome(run)
        outputs = _collect_outputs(made)
        if self.outputs:
            unknown = [name for name in self.outputs if name not in outputs]
            if unknown:
                raise unknown_name("output", unknown[0], outputs)
            outputs = {name: outputs[name] for name in self.outputs}
        finite = [jnp.all(jnp.isfinite(x)) for x in outputs.values()]
        code = jnp.where(jnp.all(jnp.stack(finite)), _SUCCESSFUL, _DIVERGED)
        return outputs, code.astype(jnp.int8)

    def __call__(self, values: Values) -> tuple[Values, Values, Array]:
        """Outputs, their derivatives by name, and the code of the outcome."""
        if not self.gradients:
            outputs, code = self.observe(values)
            return outputs, {}, code

        def differentiated(values: Values) -> tuple[Values, tuple[Values, Array]]:
            outputs, code = self.observe(values)
            for name in self.gradients:
                require_known("output to differentiate", outputs, name)
                if not jnp.issubdtype(outputs[name].dtype, jnp.inexact):
                    raise InputError(f"{name} is a count, which has no gradient.")
            return {name: outputs[name] for name in self.gradients}, (outputs, code)

        jacobian, (outputs, code) = jax.jacfwd(differentiated, has_aux=True)(values)
        slopes = {gradient_name(g, p): jacobian[g][p] for g in self.gradients for p in values}
        return outputs, slopes, code


def gradient_name(output: str, parameter: str) -> str:
    """The name of the derivative of an output by a parameter."""
    return f"d_{output}_d_{parameter}"


def _collect_outputs(made: Any) -> Values:
    """The arrays a function returned, by their paths."""
    outputs = {}
    for path, x in jax.tree_util.tree_flatten_with_path(eqx.filter(made, eqx.is_array_like))[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        name = "value" if not name else f"output_{name}" if name[0].isdigit() else name
        outputs[name] = number_array(f"what the function returns as {name}", x)
    if not outputs:
        raise InputError(f"the function must return a Problem, or arrays, got {made!r}.")
    return outputs


@final
class TracedRun(eqx.Module):
    """One run, traced once for all."""

    traced: ClosedJaxpr  # from the leaves of the values to all `variables`
    variables: dict[str, Variable]  # what it gives; the code of the outcome is last

    def __call__(self, values: Values) -> Values:
        """What one run gives; NaN or -1 where it failed and that would mean nothing."""
        made = map(
            jnp.asarray, jaxpr_as_fun(self.traced)(*jax.tree.leaves(values))
        )  # constants are no arrays
        outputs = dict(zip(self.variables, made, strict=True))
        good = has_succeeded(outputs[RESULT])
        for name, x in outputs.items():
            if not self.variables[name].kept:
                nothing = jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else -1
                outputs[name] = jnp.where(good, x, jnp.asarray(nothing, x.dtype))
        return outputs

    def fingerprint(self) -> str:
        """A hash of the code with all its constants, the same in every process."""
        return fingerprint(self.traced)


def _variables(member: Member, values: Values, outputs: Values, slopes: Values) -> dict[str, Variable]:
    """What is known of the outputs and derivatives of a run."""
    known = {}
    for name, x in outputs.items():
        require_name("an output", name)
        if name == RESULT:
            raise InputError(
                f"an output cannot be named {RESULT}, as the outcomes of the runs are: rename it."
            )
        named = (
            NamedOutput(None, "", lambda run: None, True)
            if member.of_function
            else description(name, x, member.outputs)
        )
        dims = tuple(f"{name}_{i}" for i in range(x.ndim)) if named.dims is None else named.dims
        known[name] = Variable(dims, x.shape, np.dtype(x.dtype), named.units, named.kept)
    for g in member.gradients:
        for p, value in values.items():
            name = gradient_name(g, p)
            dims = (*known[g].dims, *inner_dims(p, value.ndim))
            units = f"{known[g].units or 1} / unit of {p}"
            known[name] = Variable(
                dims, slopes[name].shape, np.dtype(slopes[name].dtype), units, member.of_function
            )
    return known | {RESULT: Variable((), (), np.dtype(np.int8), "1", True)}


def trace(member: Member, example: dict[str, np.ndarray]) -> TracedRun:
    """The program of one run."""
    values = {name: jnp.asarray(x, float) for name, x in example.items()}
    leaves, structure = jax.tree.flatten(values)
    variables: dict[str, Variable] = {}

    def flat(*leaves: Array) -> list[Array]:
        outputs, slopes, code = member(jax.tree.unflatten(structure, leaves))
        variables.update(_variables(member, values, outputs, slopes))
        return [*outputs.values(), *slopes.values(), code]

    return TracedRun(trace_program(flat, *leaves), variables)
