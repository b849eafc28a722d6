"""Questions to a mechanism besides its motion: kinematics, equilibrium, linearization, inverse dynamics, mass.

As a namespace: `ukjax.analysis`.
"""

from ._coriolis import coriolis_matrix as coriolis_matrix
from ._equilibrium import Equilibrium as Equilibrium
from ._equilibrium import equilibrium as equilibrium
from ._inverse_dynamics import InverseDynamics as InverseDynamics
from ._inverse_dynamics import inverse_dynamics as inverse_dynamics
from ._inverse_kinematics import InverseKinematics as InverseKinematics
from ._inverse_kinematics import inverse_kinematics as inverse_kinematics
from ._jacobian import Frame as Frame
from ._jacobian import Jacobian as Jacobian
from ._jacobian import frames as frames
from ._jacobian import jacobian as jacobian
from ._linearize import Linearization as Linearization
from ._linearize import linearize as linearize
from ._mass_properties import MassProperties as MassProperties
from ._mass_properties import mass_properties as mass_properties
from ._modes import Modes as Modes
from ._modes import modes as modes
