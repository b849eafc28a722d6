"""ukjax: differentiable simulation of constrained mechanical systems by the Udwadia-Kalaba equation."""

from . import models as models
from ._constraint import AbstractConstraint as AbstractConstraint
from ._constraint import AccelerationConstraint as AccelerationConstraint
from ._constraint import Holonomic as Holonomic
from ._constraint import Nonholonomic as Nonholonomic
from ._constraint import Rows as Rows
from ._constraint import constraint_rows as constraint_rows
from ._errors import InputError as InputError
from ._errors import MissingExtraError as MissingExtraError
from ._errors import SimulationError as SimulationError
from ._system import AbstractSystem as AbstractSystem
from ._system import LagrangianSystem as LagrangianSystem
from ._system import Problem as Problem
from ._system import System as System
from ._system import lagrangian_system as lagrangian_system
