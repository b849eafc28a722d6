"""What a run integrates: the model, its projection onto the constraints, and solvers that project."""
