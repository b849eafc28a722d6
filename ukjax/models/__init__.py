"""Ready-made systems: each function returns a `Problem`; physical parameters are its keyword arguments.

`MODELS` lists them by name; `get(name, **parameters)` builds one, as the command line does.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .._misc._errors import InputError, require_known
from .._system._problem import Problem
from ._andrews import andrews as andrews
from ._any_order import jerk_point as jerk_point
from ._any_order import rlc_network as rlc_network
from ._arm_6r import arm_6r as arm_6r
from ._coordinated_robots import coordinated_robots as coordinated_robots
from ._flyball_governor import flyball_governor as flyball_governor
from ._incline import knife_edge as knife_edge
from ._incline import rolling_disk as rolling_disk
from ._pendulums import light_cart_pole as light_cart_pole
from ._pendulums import n_pendulum as n_pendulum
from ._pendulums import pendulum as pendulum
from ._pendulums import spherical_pendulum as spherical_pendulum
from ._planar_linkages import four_bars as four_bars
from ._planar_linkages import parallelogram as parallelogram
from ._planar_linkages import slider_crank as slider_crank
from ._rolling import bicycle as bicycle
from ._rolling import rattleback as rattleback
from ._rolling import turntable_ball as turntable_ball
from ._rr_linkages import five_bar as five_bar
from ._rr_linkages import planar_2rrr as planar_2rrr
from ._rr_linkages import planar_3rrr as planar_3rrr
from ._rr_linkages import planar_4rrr as planar_4rrr
from ._scara import scara as scara
from ._spatial_loops import bennett as bennett
from ._spatial_loops import bricard as bricard
from ._spatial_loops import spatial_slider_crank as spatial_slider_crank
from ._spinning_top import spinning_top as spinning_top
from ._stewart import stewart as stewart
from ._strandbeest import strandbeest as strandbeest
from ._two_mass_spring import two_mass_spring as two_mass_spring

MODELS: dict[str, Callable[..., Problem]] = {
    model.__name__: model
    for model in (
        scara,
        parallelogram,
        two_mass_spring,
        coordinated_robots,
        five_bar,
        planar_2rrr,
        planar_3rrr,
        planar_4rrr,
        pendulum,
        spherical_pendulum,
        n_pendulum,
        light_cart_pole,
        slider_crank,
        knife_edge,
        rolling_disk,
        spinning_top,
        arm_6r,
        four_bars,
        andrews,
        bricard,
        flyball_governor,
        spatial_slider_crank,
        bennett,
        stewart,
        strandbeest,
        bicycle,
        rattleback,
        turntable_ball,
        jerk_point,
        rlc_network,
    )
}


def named(name: str) -> Callable[..., Problem]:
    """The function that builds the model of that name.

    **Arguments:**

    - `name`: one of `MODELS`.

    **Raises:** `InputError` if it is not known, with the closest name that is.
    """
    require_known("model", MODELS, name)
    return MODELS[name]


def require_parameters(name: str, model: Callable[..., Problem], parameters: Iterable[str]) -> None:
    """Raises `InputError` unless a model takes these parameters, and needs no others.

    **Arguments:**

    - `name`: of the model.
    - `model`: the function that builds it.
    - `parameters`: their names.
    """
    taken = inspect.signature(model).parameters
    if any(x.kind is x.VAR_KEYWORD for x in taken.values()):
        return
    parameters = list(parameters)
    require_known(f"parameter of {name}", taken, *parameters)
    needed = [k for k, x in taken.items() if x.default is x.empty and x.kind is not x.VAR_POSITIONAL]
    if missing := [k for k in needed if k not in parameters]:
        raise InputError(f"{name} needs {', '.join(missing)}, which has no default.")


def get(name: str, /, **parameters: Any) -> Problem:
    """The model of that name.

    **Arguments:**

    - `name`: one of `MODELS`.
    - `parameters`: keyword arguments of the model.

    **Returns:** the `Problem`.

    **Raises:** `InputError` if the model or a parameter is not known (with the closest known name),
    or a value is invalid.
    """
    model = named(name)
    require_parameters(name, model, parameters)
    return model(**parameters)
