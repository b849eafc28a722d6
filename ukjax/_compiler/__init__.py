"""Scalar code, found by tracing: accelerations, projections and whole runs, as machine code on a CPU."""

from ._at_states import AtStates as AtStates
from ._at_states import acceleration_at as acceleration_at
from ._at_states import equations_at as equations_at
from ._at_states import evaluate_at_state as evaluate_at_state
from ._at_states import evaluate_at_states as evaluate_at_states
from ._availability import compiler_is_here as compiler_is_here
from ._availability import looks_for_nans as looks_for_nans
from ._availability import machine_code_is_wanted as machine_code_is_wanted
from ._availability import stays_here as stays_here
from ._availability import to_leave_process as to_leave_process
from ._code import AccelerationProgram as AccelerationProgram
from ._code import compile_acceleration as compile_acceleration
from ._expressions import Program as Program
from ._lanes import Lanes as Lanes
from ._lanes import lanes as lanes
from ._projection_code import Projected as Projected
from ._projection_code import ProjectionCode as ProjectionCode
from ._projection_code import projection_for as projection_for
from ._rank_rule import StepRelativeRank as StepRelativeRank
from ._refusals import cached_or_untranslatable as cached_or_untranslatable
from ._refusals import forget as forget
from ._scalars import TranslationError as TranslationError
from ._system_function import array_function as array_function
from ._system_function import evaluate_by_code as evaluate_by_code
from ._system_function import system_function as system_function
