"""All tolerances that decide rank, dependence and rounding of rows: one set, for arrays, scalar code and NumPy alike.

The rule: rows have norm 1, and one that adds at most `rcond` to those before it depends on them. It looks at A alone:
masses do not change it. `docs/choosing.md`, "Rank rule", says why each has its value; `EPS` means machine epsilons.
"""

from typing import Any

from ._types import choose_by_precision

# Sines of angles between rows: wider than the drift they have to bear.
DEFAULT_RCOND = 1e-4
"""Rows count as dependent when what they add, relative to rows of unit norm, is below this.

In an overconstrained mechanism the redundant singular value is not zero but about as large as the drift of
the positions. So the threshold is relative and wider than any drift held in practice (1e-6 and less), not
near machine epsilon; being decided on rows of unit norm, it does not depend on their units.
"""
IN_SINGLE_PRECISION = 0.03  # as tolerances are wider there, positions within a step drift more
# What positions are off by, divided by the least sine, is how far a motion strays beside a singular position; projection
# keeps it at rounding, gains at the error of many steps: experiments/pseudoinverse_dpv.py --study rcond.
WITHOUT_PROJECTION = 1e-3
# On the constraints redundant rows are dependent to rounding; but the velocities a step leaves there are corrected by
# rounding over the sine of nearly dependent ones, which is energy: with 1e-7 some 1e-8 of it a step.
ON_CONSTRAINTS = 1e-5

# Beside the least sine where a step starts.
# Bennett's linkage turns dependent rows by 1e-3 at steps of 0.04 s; what other sizes cost: experiments/fixed_steps.py.
TURNED_AT_STAGES = 3e-3  # times the square of that sine: by so much stages turn dependent rows
CLOSER_TO_SINGULAR = 30.0  # a step that brings rows nearer to dependence by this factor is refused
CLEARLY = 10.0
"""Rows are clearly independent if each is by so many times the rank rule's threshold, whatever the order asked in."""

# Machine epsilons: what rounding leaves.
ROW_NOISE = 1e3
"""Rows smaller than this many machine epsilons of the largest row are rounding noise."""
EXACT = 1e4  # EPS, within which rows depend on each other but for rounding
ROUNDING = 32.0  # EPS, times what pivots a row builds on: as much of its own may be rounding
# Roots of EPS: at a dead centre sines go as the root of a distance, so rounding of positions is the root of it in sines.
TOLD_BY_POSITIONS = 100.0
REFINED = (
    0.1  # roots of EPS, by which masses may bring rows nearer: one step of refinement leaves 100 EPS then
)
ASYMMETRIC = 1e3  # EPS of the largest entry, by which a mass matrix may differ from its transpose

WELL_CONDITIONED = 100.0  # by which rounding may grow without refinement: EPS times it is left

# Of projectors, in which rank is decided near rounding.
OF_PROJECTED_MASS = (
    1e-9  # E is a projector to rounding; the threshold for drifting rows would cut off light bodies
)
# Rows at an angle s to the others leave a singular value of about s^2 in the matrix of the system. Rows are cut off
# before that, at the threshold of the method; here only what neither inertia nor rows determine is to be found.
OF_WHOLE_SYSTEM = 1e-12


def nearly_dependent(dtype: Any) -> float:
    """Sines below which rows count as nearly dependent, so that errors along them are left to the projection."""
    return choose_by_precision(dtype, 3e-2, 0.1)
