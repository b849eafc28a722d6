"""What the user writes: constraints, systems, stabilizers, problems."""
