"""The geoms of a file that touch: which pairs do by MuJoCo's rules, and which `mechanisms.Contact` offers."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._misc._errors import InputError, require_known
from .._system._labels import unique_names
from ..mechanisms import (
    GROUND,
    AbstractShape,
    Capsule,
    Contact,
    ConvexHull,
    Cuboid,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
    _contact_pairs,
)
from ..mechanisms._contacts import copy_contact
from ._contact_selection import ContactSelection, is_usual, restitution_of
from ._reference import Reference, mujoco, name_of, word_of
from ._report import Feature, FeatureParts, Row, features

UNUSED_SOLREF = "its damping ratio is 1 or more, so rigid and without restitution"


def rigid_words(what: str, e: float) -> str:
    """How something soft is used, by its restitution."""
    return f"{what}, {f'with restitution {e:.3g}' if e else 'without restitution'}, not soft"


class Touch(NamedTuple):
    """Two geoms that may touch."""

    geoms: tuple[int, int]  # MuJoCo's numbers
    # `friction`: sliding along two directions, against turning about the normal [m], and against rolling about two
    # [m].
    friction: np.ndarray
    condim: int  # how many of these count: 1 for none, 3 with sliding, 4 with turning, 6 with rolling
    margin: float  # the distance at which MuJoCo's contact starts to push
    solref: np.ndarray  # how MuJoCo's contact pushes back (2,)


def geom_names(at: Reference) -> tuple[str, ...]:
    """The names of geoms; those without have their body's."""
    bodies, count = at.model.geom_bodyid, at.model.ngeom
    return unique_names([name_of(at.model, "geom", i) or at.names.bodies[bodies[i]] for i in range(count)])


class _Geoms(NamedTuple):
    """What pairs of geoms touch by, of geoms (n,) as arrays of NumPy."""

    kind: np.ndarray
    affinity: np.ndarray
    body: np.ndarray
    weld: np.ndarray  # the body that it moves as one with
    above: np.ndarray  # the one that carries that
    still: np.ndarray  # whether it moves at all
    priority: np.ndarray
    solmix: np.ndarray
    friction: np.ndarray
    condim: np.ndarray
    solref: np.ndarray
    margin: np.ndarray

    @staticmethod
    def of(model: Any) -> "_Geoms":
        body = np.array(model.geom_bodyid)
        weld = model.body_weldid[body]
        of_geoms = lambda what: np.array(getattr(model, f"geom_{what}"))
        return _Geoms(
            kind=of_geoms("contype"),
            affinity=of_geoms("conaffinity"),
            body=body,
            weld=weld,
            above=model.body_weldid[model.body_parentid[weld]],
            still=model.body_dofnum[weld] == 0,
            priority=of_geoms("priority"),
            solmix=of_geoms("solmix"),
            friction=of_geoms("friction"),
            condim=of_geoms("condim"),
            solref=of_geoms("solref"),
            margin=model.geom_margin - model.geom_gap,
        )

    def partners(self, i: int, others: np.ndarray, parents: bool) -> np.ndarray:
        """Those of others that may touch geom i, by their masks: on bodies that neither move as one with its own, nor,
        unless `parents` do, are its neighbours in the tree."""
        fits = (self.kind[i] & self.affinity[others]) | (self.kind[others] & self.affinity[i])
        weld = self.weld[others]
        as_one = (self.weld[i] == weld) | (self.still[i] & self.still[others])
        on_ground = (self.weld[i] == 0) | (weld == 0)
        beside = (self.weld[i] == self.above[others]) | (weld == self.above[i])
        return others[(fits != 0) & ~as_one & (on_ground | ~beside | parents)]

    def mix(self, i: int, others: np.ndarray) -> Iterator[Touch]:
        """What MuJoCo makes of the coefficients of geom i and each of others."""
        two = np.stack([np.full_like(others, i), others])
        first, second = self.solref[two]
        share = np.maximum(self.solmix[two], mujoco().mjMINVAL)[..., None]
        mean = (share[0] * first + share[1] * second) / (share[0] + share[1])
        direct = (first[:, :1] <= 0) | (second[:, :1] <= 0)
        solref = np.where(direct, np.minimum(first, second), mean)
        friction, condim = self.friction[two].max(0), self.condim[two].max(0)
        own, its = self.priority[two]
        for k in np.flatnonzero(own != its):  # the one of higher priority alone counts
            j = i if own[k] > its[k] else others[k]
            friction[k], condim[k], solref[k] = self.friction[j], self.condim[j], self.solref[j]
        friction, margin = friction[:, [0, 0, 1, 2, 2]], self.margin[two].sum(0)
        rows = zip(others.tolist(), friction, condim.tolist(), margin.tolist(), solref, strict=True)
        return (Touch((i, j), *row) for j, *row in rows)


def list_touches(at: Reference) -> Iterator[Touch]:
    """The pairs that may touch, by MuJoCo's rules."""
    model = at.model
    if at.is_disabled("CONTACT"):
        return
    given = set()
    for k in range(model.npair):
        i, j = int(model.pair_geom1[k]), int(model.pair_geom2[k])
        given.add((min(i, j), max(i, j)))
        margin = float(model.pair_margin[k] - model.pair_gap[k])
        yield Touch(
            (i, j),
            np.array(model.pair_friction[k]),
            int(model.pair_dim[k]),
            margin,
            np.array(model.pair_solref[k]),
        )
    excluded = {tuple(sorted((int(x) >> 16, int(x) & 0xFFFF))) for x in model.exclude_signature}
    geoms, parents = _Geoms.of(model), at.is_disabled("FILTERPARENT")
    active = np.flatnonzero(geoms.kind | geoms.affinity)
    for n, i in enumerate(active.tolist()):
        others = geoms.partners(i, active[n + 1 :], parents)
        if given or excluded:
            bodies = [tuple(sorted((int(geoms.body[i]), x))) for x in geoms.body[others].tolist()]
            known = zip(others.tolist(), bodies, strict=True)
            others = others[[(i, j) not in given and of not in excluded for j, of in known]]
        yield from geoms.mix(i, others)


def kind_of_geom(at: Reference, geom: int) -> str:
    """Such as `"capsule"`."""
    return word_of("Geom", at.model.geom_type[geom])


def shape_of(at: Reference, geom: int) -> AbstractShape | None:
    """The shape of a geom in the reference posture; None where there is no such."""
    body, centre, axes = at.frame("geom", geom)
    size, kind = np.array(at.model.geom_size[geom]), kind_of_geom(at, geom)
    if kind == "plane":
        return HalfSpace(body, centre, axes[:, 2])
    if kind == "sphere":
        return Sphere(body, centre, size[0])
    along = size[1] * axes[:, 2]
    if kind == "capsule":
        return Capsule(body, centre - along, centre + along, size[0])
    if kind == "cylinder":
        return Cylinder(body, centre - along, centre + along, size[0])
    if kind == "ellipsoid":
        return Ellipsoid(body, centre, size, axes)
    if kind == "hfield":
        return _field_of(at, geom, body, centre, axes)
    if kind == "mesh":
        return _hull_of(at, geom, body, centre, axes)
    return Cuboid(body, centre, 2 * size, axes) if kind == "box" else None


def _field_of(at: Reference, geom: int, body: str, centre: np.ndarray, axes: np.ndarray) -> HeightField:
    model, field = at.model, int(at.model.geom_dataid[geom])
    rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
    first = int(model.hfield_adr[field])
    heights = np.array(model.hfield_data[first : first + rows * columns], float).reshape(rows, columns)
    *half, top, depth = map(float, model.hfield_size[field])
    return HeightField(body, centre, top * heights, 2 * np.array(half), depth, axes)


def _hull_of(at: Reference, geom: int, body: str, centre: np.ndarray, axes: np.ndarray) -> ConvexHull | None:
    """The convex hull of a mesh, as MuJoCo has it, of `maxhullvert` points at most; None of one without a volume."""
    mesh, model = int(at.model.geom_dataid[geom]), at.model
    if mesh < 0:
        return None
    first, graph = int(model.mesh_vertadr[mesh]), int(model.mesh_graphadr[mesh])
    if graph < 0:
        own = np.arange(model.mesh_vertnum[mesh])
    else:  # numbers of vertices and faces, a place for each vertex, then which of the mesh's they are
        count = int(model.mesh_graph[graph])
        own = model.mesh_graph[graph + 2 + count : graph + 2 + 2 * count]
    vertices = np.array(model.mesh_vert[first + own], float)
    try:
        return ConvexHull(body, centre + vertices @ axes.T)
    except InputError:
        return None


def is_offered(first: AbstractShape | None, second: AbstractShape | None) -> bool:
    """Whether the shapes of two geoms can touch."""
    if first is None or second is None:
        return False
    a, b = sorted((first, second), key=lambda x: x.order)
    return _contact_pairs.is_offered(a, b)


def contacts(at: Reference, chosen: ContactSelection) -> FeatureParts:
    """The contacts of geoms, with a ground that stands still and with each other."""
    names, by_name, rows, asked = geom_names(at), dict[str, Contact](), list[Row](), set[frozenset[str]]()
    alike: dict[Any, tuple[Contact, bool]] = {}  # to make a contact takes longer than to copy one
    geoms: dict[str, tuple[int, int]] = {}
    shape = functools.cache(functools.partial(shape_of, at))
    kind = functools.cache(lambda geom: type(shape(geom)))
    middle = functools.cache(lambda geom: np.asarray(shape(geom).middle))  # pyright: ignore[reportOptionalMemberAccess]
    offered: dict[Any, bool] = {}
    body_of = [at.names.bodies[x] for x in at.model.geom_bodyid]
    is_still = [at.carriers[x] == GROUND for x in at.model.geom_bodyid]
    for touch in list_touches(at):
        i, j = sorted(touch.geoms, key=is_still.__getitem__)
        bodies = [body_of[x] for x in (i, j)]
        name = f"{names[i]}-{names[j]}"
        word = "ground" if is_still[j] else "self"
        own = chosen.asked_pairs((names[i], bodies[0]), (names[j], bodies[1]))
        asked |= own
        if not (own or chosen.has(word)):
            feature = "contact with what stands still" if word == "ground" else "contact of moving bodies"
            rows += chosen.left_out(feature, [name], word)
            continue
        first, second, kinds = shape(i), shape(j), (kind(i), kind(j))
        if kinds not in offered:
            offered[kinds] = is_offered(first, second)
        if not offered[kinds]:
            words = " and ".join(sorted(kind_of_geom(at, x) for x in (i, j)))
            rows.append((f"contact of {words}", name, "ignored", "these shapes are not offered"))
            continue
        if name in by_name:
            rows.append(("contact listed again", name, "ignored", "rigid bodies touch once"))
            continue
        called = (names[i], bodies[0]), (names[j], bodies[1])
        e, mu = chosen.restitution.of(*called), chosen.friction.of(*called)
        if e is None:
            e = restitution_of(touch.solref)
            if not (e or is_usual(touch.solref)):
                rows.append(("solref of a contact", name, "off", UNUSED_SOLREF))
        assert first is not None
        assert second is not None
        frictions = _frictions(touch, mu, first, second)
        ends = (second, first) if "along" in frictions else (first, second)
        key = None if "along" in frictions else (*kinds, e, *frictions.items())
        if key and key in alike:
            like, swapped = alike[key]
            middle_of = lambda x, i=i, j=j, first=first: middle(i if x is first else j)
            one, other = ends[::-1] if swapped else ends
            contact = copy_contact(like, one, other, name, middle_of)
        else:
            contact = Contact(*ends, restitution=e, name=name, **frictions)
            swapped = contact.shapes[0] is not first
            alike[key] = contact, swapped
        by_name[name] = contact
        geoms |= dict.fromkeys(contact.row_names, (j, i) if swapped else (i, j))
        rows += [("contact", name, "used", rigid_words("rigid", e)), *_list_lost(touch, name)]
    _require_asked(at, chosen, names, asked)
    return FeatureParts(
        contacts=tuple(by_name.values()), features=(*features(rows), *_list_exclusions(at)), geoms=geoms
    )


def _frictions(touch: Touch, mu: float | None, first: AbstractShape, second: AbstractShape) -> dict[str, Any]:
    """The coefficients of a contact, with mu in place of the file's sliding ones if it is given."""
    slide, across, torsion, rolling, _ = map(float, touch.friction)
    if mu is not None:
        slide = across = mu
    elif touch.condim == 1:
        slide = across = 0.0
    elif touch.condim > 3 or slide != across:
        slide, across = max(slide, mujoco().mjMINMU), max(across, mujoco().mjMINMU)
    if slide == 0:
        return {"friction": 0.0}
    further = {"torsion": torsion * (touch.condim > 3), "rolling": rolling * (touch.condim > 4)}
    if slide == across:
        return {"friction": slide, **further}
    # The first axis of MuJoCo's contact frames is y as far as it lies across the normal, or z.
    steep = abs(float(Contact(first, second).direction[1])) >= 0.5
    return {"friction": (slide, across), "along": np.eye(3)[1 + steep], **further}


def _list_lost(touch: Touch, name: str) -> list[Row]:
    """What a contact has of MuJoCo's that is not used."""
    slide, across, _, *rolling = touch.friction
    lost = {
        "friction of two directions": (
            touch.condim > 1 and slide != across,
            "they turn with the second body",
        ),
        "rolling friction of two directions": (
            touch.condim > 4 and rolling[0] != rolling[1],
            "that of the first counts for both",
        ),
        "margin of a contact": (touch.margin != 0, ""),
    }
    return [
        (what, name, "approximated" if why else "ignored", why or "contacts have none")
        for what, (there, why) in lost.items()
        if there
    ]


def _list_exclusions(at: Reference) -> list[Feature]:
    named = lambda i: name_of(at.model, "exclude", i) or f"exclude {i}"
    return [Feature("contact exclusion", tuple(named(i) for i in range(at.model.nexclude)), moves=False)]


def _require_asked(
    at: Reference, chosen: ContactSelection, names: tuple[str, ...], asked: set[frozenset[str]]
) -> None:
    for pair in chosen.pairs - asked:
        known = [*names, *at.names.bodies]
        require_known("geom or body in contact:", known, *pair)
        raise InputError(
            f"contact of {' and '.join(map(repr, sorted(pair)))}: by the file's contype, conaffinity and exclusions they "
            "do not touch."
        )
