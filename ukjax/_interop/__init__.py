"""Bridges to other software: environments for reinforcement learning, exported simulations, C, FMUs, PyTorch.

As a namespace: `ukjax.interop`.
"""

from ._environment import Environment as Environment
from ._environment_state import EnvironmentState as EnvironmentState
from ._export import export as export
from ._export import load_exported as load_exported
from ._from_fmu import LoadedFmu as LoadedFmu
from ._from_fmu import load_fmu as load_fmu
from ._live_page import to_page as to_page
from ._to_c import CExport as CExport
from ._to_c import CFunction as CFunction
from ._to_c import to_c as to_c
from ._to_fmu import FmuExport as FmuExport
from ._to_fmu import FmuVariable as FmuVariable
from ._to_fmu import to_fmu as to_fmu
from ._torch import to_torch as to_torch
