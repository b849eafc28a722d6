"""A motion between its saved times, for pictures: by its velocities, and past impacts by its accelerations."""

import numpy as np


def refine(
    t: np.ndarray, q: np.ndarray, rate: np.ndarray, a: np.ndarray, events: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Times and coordinates of a motion, at least so many, those that are known among them.

    Between two known times the coordinates are the cubic polynomial with their rates at both. Where velocities jump
    between them, they are the parabola with rate and acceleration of the nearer side of the event.

    **Arguments:**

    - `t`, `q`, `rate`, `a`: times (k,), and coordinates, their first and second derivatives (k, n).
    - `events`: when velocities jump.
    - `least`: how many times.
    """
    longest = (t[-1] - t[0]) / max(least, 1)
    times, places = [t[:1]], [q[:1]]
    for i in range(len(t) - 1):
        h = t[i + 1] - t[i]
        inner = np.linspace(t[i], t[i + 1], 1 + max(1, int(np.ceil(h / longest)) if longest > 0 else 1))[1:]
        jumps = events[(events > t[i]) & (events < t[i + 1])]
        at = np.union1d(inner, jumps)
        s = (at - t[i])[:, None]
        if not jumps.size:
            x = s / h
            found = q[i] * (1 + 2 * x) * (1 - x) ** 2 + rate[i] * s * (1 - x) ** 2
            found += (q[i + 1] * (3 - 2 * x) + rate[i + 1] * h * (x - 1)) * x**2
        else:
            back = s - h
            before = q[i] + s * rate[i] + 0.5 * s**2 * a[i]
            after = q[i + 1] + back * rate[i + 1] + 0.5 * back**2 * a[i + 1]
            found = np.where(at[:, None] <= jumps[0], before, after)
        found[-1] = q[i + 1]
        times.append(at)
        places.append(found)
    return np.concatenate(times), np.concatenate(places)
