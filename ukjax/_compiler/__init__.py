"""Scalar code, found by tracing: accelerations, projections and whole runs, as machine code on a CPU."""

from ._code import AccelerationProgram as AccelerationProgram
from ._code import compile_acceleration as compile_acceleration
from ._dependence import find_dependence as find_dependence
from ._expressions import Program as Program
from ._foreign import compiler_is_here as compiler_is_here
from ._foreign import looks_for_nans as looks_for_nans
from ._foreign import machine_code_is_wanted as machine_code_is_wanted
from ._foreign import stays_here as stays_here
from ._foreign import to_leave_process as to_leave_process
from ._lanes import Lanes as Lanes
from ._lanes import lanes as lanes
from ._projection import Projected as Projected
from ._projection import ProjectionCode as ProjectionCode
from ._projection import projection_for as projection_for
from ._scalars import TranslationError as TranslationError
from ._solve import StepRelativeRank as StepRelativeRank
from ._system_function import AtStates as AtStates
from ._system_function import acceleration_at as acceleration_at
from ._system_function import array_function as array_function
from ._system_function import equations_at as equations_at
from ._system_function import evaluate_at_state as evaluate_at_state
from ._system_function import evaluate_at_states as evaluate_at_states
from ._system_function import evaluate_by_code as evaluate_by_code
from ._system_function import system_function as system_function
from ._traced_system import cached_or_untranslatable as cached_or_untranslatable
from ._traced_system import forget as forget
