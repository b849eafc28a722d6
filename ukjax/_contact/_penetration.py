"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N d,    d = W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

with W of the step and the rows J_n of normal velocities at q*, of rigid contacts. It is solved by Newton's method: with g
linearized about where positions are, each step is a problem of contacts without friction, of those that penetrate or are
pushed. Where g is that of positions projected onto the bilateral rows, both hold. What penetrates moves, and nothing
else.
"""

# What gaps may lack: some rounding errors of positions of up to 100 m.
PENETRATION = (5e-11, 1e-4)
# What bodies may be deeper after a step than before it, where no state near by has them apart [m].
PENETRATES = (1e-6, 1e-3)
# Two or three are enough as a rule; where nothing is apart near by, more do not help.
TRIES = 10.0
