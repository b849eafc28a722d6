"""The plans of runs, by the kind of run, remembered for the next call with the same objects."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from jaxtyping import Array

from .._compiler import machine_code_is_wanted, stays_here
from .._misc._keyed import key_by_identity
from .._system._system import AbstractSystem
from ._contact_common import BY_STEPS, tier_of
from ._contact_march import StepsPlan
from ._contact_run import EventsPlan
from ._event_resets import has_resets
from ._mutable_arguments import changeable_in, is_unchanged
from ._plan import Options, RunPlan
from ._run_record import key

_KINDS = {None: RunPlan, "events": EventsPlan, **dict.fromkeys(BY_STEPS, StepsPlan)}
_MOST = 64  # plans remembered
AnyPlan = RunPlan | EventsPlan | StepsPlan

_lock = threading.Lock()
_plans: OrderedDict[Hashable, tuple[AnyPlan, list[tuple[Any, Any]]]] = OrderedDict()


def plan_run(system: AbstractSystem, options: Options, t: Array, q: Array, v: Array) -> AnyPlan:
    """The plan of a run.

    **Raises:** `InputError` for invalid arguments.
    """
    here = machine_code_is_wanted(), stays_here()
    remembered = key_by_identity(system), *map(key, options), q.dtype, q.shape, v.shape, *here
    with _lock:
        plan, changeable = _plans.get(remembered, (None, ()))
        if plan is not None and all(is_unchanged(*x) for x in changeable):
            _plans.move_to_end(remembered)
            return plan
    plan = _KINDS[tier_of(system, options.contact, has_resets(options.event))](system, options, t, q, v)
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
