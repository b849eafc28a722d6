"""Mechanisms: each function returns a `Problem`; physical parameters are its keyword arguments.

`MODELS` lists them by name; `get(name, **parameters)` builds one, as the command line does.
"""

import inspect
from collections.abc import Callable
from typing import Any

from .._arguments import unknown_name
from .._problem import Problem
from ._coordinated_robots import coordinated_robots as coordinated_robots
from ._knife_edge import knife_edge as knife_edge
from ._n_pendulum import n_pendulum as n_pendulum
from ._parallelogram import parallelogram as parallelogram
from ._pendulum import pendulum as pendulum
from ._planar_3rrr import planar_3rrr as planar_3rrr
from ._rolling_disk import rolling_disk as rolling_disk
from ._scara import scara as scara
from ._slider_crank import slider_crank as slider_crank
from ._spherical_pendulum import spherical_pendulum as spherical_pendulum
from ._spinning_top import spinning_top as spinning_top
from ._two_mass_spring import two_mass_spring as two_mass_spring

MODELS: dict[str, Callable[..., Problem]] = {
    model.__name__: model
    for model in (
        scara,
        parallelogram,
        two_mass_spring,
        coordinated_robots,
        planar_3rrr,
        pendulum,
        spherical_pendulum,
        n_pendulum,
        slider_crank,
        knife_edge,
        rolling_disk,
        spinning_top,
    )
}


def get(name: str, /, **parameters: Any) -> Problem:
    """The model of that name.

    **Arguments:**

    - `name`: one of `MODELS`.
    - `parameters`: keyword arguments of the model.

    **Returns:** the `Problem`.

    **Raises:** `InputError` if the model or a parameter is not known (with the closest known name),
    or a value cannot be meant.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    known = list(inspect.signature(MODELS[name]).parameters)
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    return MODELS[name](**parameters)
