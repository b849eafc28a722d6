"""What a run integrates: accelerations and projections, as scalar code and on arrays, and solvers that project."""
