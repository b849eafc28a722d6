"""What every room needs: errors, array types, checks of arguments, rotations."""
