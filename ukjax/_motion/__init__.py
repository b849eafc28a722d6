"""What a run integrates: a system's acceleration and projection, as scalar code and on arrays, and solvers that project."""
