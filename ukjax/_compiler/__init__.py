"""Scalar code, found by tracing: accelerations, projections and whole runs, as machine code on a CPU."""

from ._at_states import AtStates as AtStates
from ._at_states import acceleration_at as acceleration_at
from ._at_states import at_state as at_state
from ._at_states import at_states as at_states
from ._at_states import equations_at as equations_at
from ._availability import compiler_is_here as compiler_is_here
from ._availability import looks_for_nans as looks_for_nans
from ._availability import machine_code_is_wanted as machine_code_is_wanted
from ._availability import stays_here as stays_here
from ._availability import to_leave_process as to_leave_process
from ._code import Code as Code
from ._code import code_for as code_for
from ._expressions import Program as Program
from ._lanes import Lanes as Lanes
from ._lanes import lanes as lanes
from ._projection_code import Projected as Projected
from ._projection_code import ProjectionCode as ProjectionCode
from ._projection_code import projection_for as projection_for
from ._rank_rule import AtStages as AtStages
from ._refusals import forget as forget
from ._refusals import remembered as remembered
from ._scalars import TranslationError as TranslationError
from ._system_function import array_function as array_function
from ._system_function import by_code as by_code
from ._system_function import system_function as system_function
