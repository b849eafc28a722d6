"""The mass matrix of a kinematic tree, in the form in which it is factored in proportion to its size."""

from typing import final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

from .._misc._types import module_for


@final
class TreeInertia(eqx.Module):
    """M = sum J_i^T I_i J_i + diag(a) of a kinematic tree, without its n^2 entries (Featherstone 2008, 6.2 and 7.2).

    Each velocity k moves all that lies behind it in the tree by v_k times a twist about a point of its own. Twists are
    angular part first, all in world axes.

    - `axes`: the twist of each velocity about its point, (angular, linear) (n, 6).
    - `inertia`: of what moves with velocity k but with none behind it, about the point of k (n, 6, 6), symmetric.
    - `arms`: from the point of the velocity before k to that of k; for the first ones from the origin [m] (n, 3).
    - `parents`: the velocity before each; -1 for the ground.
    - `armature`: a, what each velocity moves besides, such as the rotor of a geared motor (n,); None for nothing.
    """

    axes: Array | np.ndarray  # of expressions, where scalar code is made
    inertia: Array | np.ndarray
    arms: Array | np.ndarray
    parents: tuple[int, ...] = eqx.field(static=True)
    armature: Array | np.ndarray | None = None

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
