"""What a run integrates: the model, its projection, and solvers that project."""
