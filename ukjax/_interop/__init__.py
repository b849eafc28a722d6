"""Bridges to other software: environments for reinforcement learning, exported simulations, PyTorch.

As a namespace: `ukjax.interop`.
"""

from ._environment import Environment as Environment
from ._environment_state import EnvironmentState as EnvironmentState
from ._export import export as export
from ._export import load_exported as load_exported
from ._torch import to_torch as to_torch
