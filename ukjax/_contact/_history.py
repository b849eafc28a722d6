"""What a run tells of its contacts."""

from typing import final

import equinox as eqx
from jaxtyping import Array, Bool, Float


@final
class ContactHistory(eqx.Module):
    """The contacts of a run over its k saved times, and its impacts.

    - `names`: of the n contacts, such as `foot[0]`.
    - `contacts`: of each, whether it has a gap, and how many tangential rows.
    - `gap`: gaps (k, n) [m], zero for dry friction.
    - `force`: forces on the m rows (k, m) [N]: of each contact the normal one first, then the tangential ones.
    - `closed`: whether contacts are closed (k, n).
    - `sliding`: whether closed contacts slide (k, n).
    - `impact_time`: times of impacts (l,) [s], infinite where there were fewer.
    - `impulse`: impulses of the impacts on the m rows (l, m) [N s].
    """

    names: tuple[str, ...] = eqx.field(static=True)
    contacts: tuple[tuple[bool, int], ...] = eqx.field(static=True)
    gap: Float[Array, "k n"]
    force: Float[Array, "k m"]
    closed: Bool[Array, "k n"]
    sliding: Bool[Array, "k n"]
    impact_time: Float[Array, " l"]
    impulse: Float[Array, "l m"]
