"""References for motions with contacts: SciPy between events, closed forms for discs, and their derivatives."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

G = 9.81
TIGHT = {"rtol": 1e-11, "atol": 1e-11}


def violation(G, u0, mu, dim, p):
    """The largest violation of the laws of Signorini and Coulomb, by NumPy."""
    p = np.asarray(p)
    u = (G @ p + u0).reshape(-1, dim)
    p = p.reshape(-1, dim)
    found = [np.abs(np.minimum(p[:, 0], u[:, 0])).max()]
    if dim > 1:
        force, slip = np.linalg.norm(p[:, 1:], axis=1), np.linalg.norm(u[:, 1:], axis=1)
        found.append((force - mu * p[:, 0]).max())
        found.append(np.abs((p[:, 1:] * u[:, 1:]).sum(1) + mu * p[:, 0] * slip).max())
    return max(found)


def forward(run, p):
    """What run(p, options) returns, (numbers, trajectory), and derivatives of the numbers, from one compilation."""

    def twice(p):
        found, trajectory = run(p, TIGHT | {"adjoint": dfx.ForwardMode()})
        return found, (found, trajectory)

    slope, (found, trajectory) = jax.jit(jax.jacfwd(twice, has_aux=True))(p)
    return found, slope, trajectory


def events_of(run):
    """Times of the events that there were."""
    return np.asarray(run.contacts.event_time)[: int(run.contacts.num_events)]


def followed(rate, y0, t1, events, jump, at, most=10_000):
    """States at times `at` of a motion that starts anew, by `jump(k, t, y)`, wherever one of SciPy's events occurs."""
    t, y, found, times = 0.0, np.asarray(y0, float), [], []
    for e in events:
        e.terminal = True
    while t < t1 and len(times) < most:
        options = {"rtol": 1e-12, "atol": 1e-13, "method": "DOP853", "max_step": 0.02}
        piece = solve_ivp(rate, (t, t1), y, events=events, dense_output=True, **options)
        found += [(x, piece.sol(x)) for x in at if t <= x <= piece.t[-1]]
        t, y = piece.t[-1], piece.y[:, -1]
        if piece.status == 1:
            k = next(i for i, x in enumerate(piece.t_events) if x.size)
            times.append(t)
            y = jump(k, t, y)
    return np.array([y for _, y in found]), np.array(times)


def slopes(function, p, step=1e-4):
    """Derivatives of function(p) by each p, by differences of fourth order."""
    p, columns = np.asarray(p, float), []
    for i in range(p.size):
        at = lambda k, i=i: np.asarray(function(p + k * step * np.eye(p.size)[i]))
        columns.append((8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step))
    return np.stack(columns, axis=-1)


def meeting(q, v, a, distance):
    """When |q + v t + a t^2 / 2| first is `distance`; infinite if never."""
    each = [np.array([a[i] / 2, v[i], q[i]]) for i in range(len(q))]
    terms = sum(np.convolve(x, x) for x in each) - np.array([0, 0, 0, 0, distance**2])
    near = [r.real for r in np.roots(np.trim_zeros(terms, "f")) if abs(r.imag) < 1e-9 and r.real > 1e-9]
    if not near:
        return np.inf
    t, slope = min(near), np.polyder(terms)
    for _ in range(3):
        t -= np.polyval(terms, t) / np.polyval(slope, t)
    return t


def discs_at(t1, q, v, a, masses, radii, e):
    """Places and velocities (n, 2) at t1 of discs with accelerations a, which stay; and times of impacts."""
    t, q, v, times = 0.0, np.array(q, float), np.array(v, float), []
    pairs = [(i, j) for i in range(len(q)) for j in range(i)]
    while True:
        when = [meeting(q[i] - q[j], v[i] - v[j], a[i] - a[j], radii[i] + radii[j]) for i, j in pairs]
        step = min(min(when), t1 - t)
        q, v = q + v * step + a * step**2 / 2, v + a * step
        t += step
        if t >= t1 - 1e-14:
            return q, v, np.array(times)
        (i, j), _ = pairs[int(np.argmin(when))], times.append(t)
        n = (q[i] - q[j]) / np.linalg.norm(q[i] - q[j])
        p = -(1 + e) * ((v[i] - v[j]) @ n) / (1 / masses[i] + 1 / masses[j])
        v[i], v[j] = v[i] + p * n / masses[i], v[j] - p * n / masses[j]


def within(bound, found, exact):
    """That numbers differ by no more than a bound, however large they are."""
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound)


def exactly(function, p):
    """Derivatives of a closed form, by JAX."""
    return jax.jit(jax.jacfwd(function))(jnp.asarray(p, float))


def compared(run, reference, p, by=slopes):
    """States and the like to 1e-8, times to 1e-9 and derivatives of both to 1e-6; the trajectory.

    **Arguments:**

    - `run`: of p and options, ((states, times), trajectory).
    - `reference`: of p, (states, times).
    - `p`: the parameters.
    - `by`: how the derivatives of a function are found at p.
    """
    found, derivatives, trajectory = forward(run, jnp.asarray(p, float))
    for bound, x, exact in zip((1e-8, 1e-9), found, reference(np.asarray(p, float)), strict=True):
        within(bound, x, exact)
    joined = lambda p: jnp.concatenate([jnp.asarray(x) for x in reference(p)])
    within(1e-6, np.concatenate(derivatives), by(joined, p))
    return trajectory
