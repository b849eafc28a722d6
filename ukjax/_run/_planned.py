"""The plans of runs, by the kind of run, kept for the next call with the same objects, and how to let go of them."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from .._compiler import forget, machine_code_is_wanted, stays_here
from .._misc._closures import key_by_identity
from .._misc._garbage import undisturbed
from .._misc._progress import COMPILING, say
from .._system._system import AbstractSystem
from ._contact_common import BY_STEPS, tier_of
from ._contact_march import StepsPlan
from ._contact_run import EventsPlan
from ._events import has_resets
from ._parts import key
from ._plan import Options, RunPlan

# --- What of a call's arguments a user may change in place, so that what is remembered of them no longer holds


def changeable_in(given: Any) -> list[tuple[Any, Any]]:
    """All in a pytree whose contents can change, each with what it holds now: dictionaries, lists, arrays of NumPy's."""
    containers = lambda x: isinstance(x, list | dict)
    parts = [x for x in jax.tree.leaves(given, is_leaf=containers) if isinstance(x, list | dict | np.ndarray)]
    within = [changeable_in(tuple(x.values() if isinstance(x, dict) else x)) for x in parts if containers(x)]
    return [(x, _contents(x)) for x in parts] + [pair for each in within for pair in each]


def _contents(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else [*x, *x.values()] if isinstance(x, dict) else list(x)


def is_unchanged(x: Any, before: Any) -> bool:
    """Whether something holds what it held."""
    if isinstance(x, np.ndarray):
        return np.array_equal(x, before, equal_nan=True)
    now = _contents(x)
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


# --- The plans of runs, by the kind of run, remembered for the next call with the same objects

_KINDS = {None: RunPlan, "events": EventsPlan, **dict.fromkeys(BY_STEPS, StepsPlan)}
_MOST = 64  # plans remembered
AnyPlan = RunPlan | EventsPlan | StepsPlan

_lock = threading.Lock()
_plans: OrderedDict[Hashable, tuple[AnyPlan, list[tuple[Any, Any]]]] = OrderedDict()


def plan_run(system: AbstractSystem, options: Options, t: Array, q: Array, v: Array) -> AnyPlan:
    """The plan of a run."""
    here = machine_code_is_wanted(), stays_here()
    remembered = key_by_identity(system), *map(key, options), q.dtype, q.shape, v.shape, *here
    with _lock:
        plan, changeable = _plans.get(remembered, (None, ()))
        if plan is not None and all(is_unchanged(*x) for x in changeable):
            _plans.move_to_end(remembered)
            return plan
    kind = _KINDS[tier_of(system, options.contact, has_resets(options.event))]
    with say(COMPILING):
        plan = undisturbed(kind)(system, options, t, q, v)
    if not plan.traced:
        with _lock:
            _plans[remembered] = plan, changeable_in((system, tuple(options)))
            if len(_plans) > _MOST:
                _plans.popitem(last=False)
    return plan


def forget_plans() -> None:
    """Drops all plans."""
    with _lock:
        _plans.clear()


# --- What is kept of models that were run, and how to let go of it


def clear_caches() -> None:
    """Lets go of all that ukjax and JAX keep of models so far, for sessions in which models come by hundreds.

    A model that was run keeps some megabytes: its scalar code, its machine code, and what XLA compiled around it. Of
    scalar code the last 64 models of each kind are kept, by JAX far more. After this call what runs next is compiled
    anew. Trajectories and your own arrays stay as they are. What machine code functions under `jax.jit` call stays until
    the process ends, since XLA may call it for as long.
    """
    forget_plans()
    forget()
    jax.clear_caches()
    gc.collect()
