"""A switch that is needed no more."""


def compile_loops_whole() -> None:
    """Does nothing. It made XLA compile loops for a CPU in another way, before whole runs were machine code.

    It is kept for scripts that call it.
    """
