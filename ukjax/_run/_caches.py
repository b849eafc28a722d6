"""What is kept of models that were run, and how to let go of it."""

import gc

import jax

from .._compiler import forget
from ._planned import forget_plans


def clear_caches() -> None:
    """Lets go of all that ukjax and JAX keep of models so far, for sessions in which models come by hundreds.

    A model that was run keeps some megabytes: its scalar code, its machine code, and what XLA compiled around it. Of
    scalar code the last 64 models of each kind are kept, by JAX far more. After this call what runs next is compiled
    anew. Trajectories and your own arrays stay as they are. What machine code functions under `jax.jit` call stays until
    the process ends, since XLA may call it for as long.
    """
    forget_plans()
    forget()
    jax.clear_caches()
    gc.collect()
