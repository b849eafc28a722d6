"""The structured representation: programs of scalars with loops, branches and calls, and what becomes of them."""
