"""The tasks of `contact_gradients.py`, by numbers, for simulators with and without JAX."""

from typing import NamedTuple

STEPS = 1000


class Task(NamedTuple):
    """Balls of mass 1 in a plane, x and y, with or without a floor y = 0 and a wall.

    - `start`: places (balls, 2), then velocities.
    - `goal`: where the last ball should be: its squared distance is differentiated; without one the places are.
    - `radius`, `e`, `gravity`, `end`: of the balls, of all impacts, downwards, and the time.
    - `floor`, `wall`: whether there is a floor, and where the wall is, if there is one.
    - `force`: on the first ball.
    """

    name: str
    start: tuple[float, ...]
    radius: float
    e: float
    gravity: float
    end: float
    goal: tuple[float, float] | None = None
    floor: bool = False
    wall: float | None = None
    force: tuple[float, float] = (0.0, 0.0)

    @property
    def balls(self) -> int:
        return len(self.start) // 4

    @property
    def lift(self) -> float:
        """What is added to the height of a point, which is a small ball elsewhere."""
        return 0.0 if self.radius else 1e-3

    def outward(self, places):
        """The Jacobian of what is differentiated by places, in rows."""
        n = 2 * self.balls
        unit = [[float(i == j) for j in range(n)] for i in range(n)]
        if self.goal is None:
            return unit
        return [
            [0.0] * (n - 2) + [2 * (float(x) - g) for x, g in zip(places[n - 2 : n], self.goal, strict=True)]
        ]


TASKS = (
    Task("two balls on a line (nimble#97)", (0, 0, 0.52, 0, 1, 0, 0, 0), 0.1, 1.0, 0.0, 1.0),
    Task("one bounce (task 1)", (-1, 1, 2, -2), 0.1, 1.0, 0.0, 1.0, floor=True),
    Task("ground and wall (task 2)", (-0.5, 1, 5, -5), 0.1, 0.92, 9.8, 0.6, (-2, 1.5), floor=True, wall=1.75),
    Task(
        "two balls and a force (task 3)",
        (-2, -2, -1, -1, 0, 0, 0, 0),
        0.2,
        1.0,
        0.0,
        1.0,
        (0, 0),
        force=(3, 3),
    ),
    Task("bouncing ball, e = 0.8", (0, 1, 0, 0), 0.0, 0.8, 9.81, 0.6, floor=True),
    Task("billiards, oblique", (0, 0, 0.6, 0.07, 1.5, 0, 0, 0), 0.1, 1.0, 0.0, 1.0),
)
