"""A crank, a rod in space and a slider: the spatial slider-crank of the benchmark library."""

from .._misc._types import as_jax, module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Body, Gravity, Prismatic, Revolute, Spherical, Universal, tree
from ._named_points import NamedPoints
from ._parameters import Scalar, check, check_finite, check_positive, numbers, stack_parameters

_CITATION = (
    "E. J. Haug, Computer-Aided Kinematics and Dynamics of Mechanical Systems, 1989, section 12.3; IFToMM library of "
    "computational benchmark problems: spatial rigid slider-crank mechanism."
)
_ALONG = (1.0, 0.0, 0.0)


def spatial_slider_crank(
    *,
    crank: Scalar = 0.08,
    rod: Scalar = 0.3,
    beside: Scalar = 0.1,
    above: Scalar = 0.12,
    rate: Scalar = 6.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """A crank that turns about the x axis, a rod, and a slider along the x axis, z up: one degree of freedom.

    The crank's pin is a ball joint, which closes the loop, the slider's a universal joint with its first axis along z.
    Masses are 0.12, 0.5 and 2 kg; moments of inertia 1e-4, 1e-4, 1e-5 of the crank, 4e-3 across the rod and 4e-4 along
    it, and 1e-4 of the slider [kg m^2].

    **Arguments:**

    - `crank`, `rod`: their lengths [m].
    - `beside`, `above`: where the crank turns, along y and z [m].
    - `rate`: of the crank at the start, where it points upwards [rad/s].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `slider`, `crank`.

    **Raises:** `InputError`, naming the parameter that is wrong; also where the rod is too short.
    """
    check_positive(crank=crank, rod=rod)
    check_finite(beside=beside, above=above, rate=rate, gravity=gravity)
    a, length, y, z, w = numbers(crank, rod, beside, above, rate)
    xp = module_for(a, length, y, z, w)
    o = xp.zeros_like(a)
    reach = length**2 - y**2 - (z + a) ** 2
    check(reach > 0, "rod must reach from the crank's pin to the x axis.")
    x = xp.sqrt(reach)
    pivot, pin, slider = xp.stack([o, y, z]), xp.stack([o, y, z + a]), xp.stack([x, o, o])
    d = (slider - pin) / length
    # About its length a tenth of what it is across.
    inertia = 4e-3 * xp.eye(3, dtype=d.dtype) - 3.6e-3 * xp.outer(d, d)
    across = xp.stack([-d[1], d[0], o])  # square to the rod and to z
    bodies = [
        Body("crank", 0.12, pivot, (1e-4, 1e-4, 1e-5), {"pin": pin}),
        Body("slider", 2.0, slider, (1e-4, 1e-4, 1e-4)),
        Body("rod", 0.5, 0.5 * (pin + slider), inertia, {"start": pin, "end": slider}, shape="rod"),
    ]
    joints = [
        Revolute("crank pivot", GROUND, "crank", pivot, _ALONG),
        Prismatic("guide", GROUND, "slider", slider, _ALONG),
        Universal("slider pin", "slider", "rod", slider, (0.0, 0.0, 1.0), across),
    ]
    ball = Spherical("crank pin", "crank", "rod", pin)
    # The pin moves along -y at first, and the slider along x at y / x of that; the rod turns with both.
    slide = w * a * y / x
    turning = xp.cross(d, xp.stack([slide, w * a, o])) / length
    about = xp.linalg.solve(xp.stack([xp.stack([o, o, o + 1]), across, d], axis=1), turning)
    system = tree(bodies, joints, [Gravity(stack_parameters((0.0, 0.0, -gravity)))], loops=[ball])
    v0 = xp.stack([w, slide, about[0], about[1]])
    points = NamedPoints(system, (("slider", "slider"), ("crank", "crank.pin")))
    return Problem(
        system, system.q0, as_jax(v0), 0.0, 5.0, points, citation=_CITATION, name="spatial_slider_crank"
    )
