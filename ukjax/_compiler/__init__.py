"""Functions of small arrays as scalar code: for CPUs, for GPUs, and in C. It knows nothing of mechanics."""

from ._evaluate import AtStates as AtStates
from ._evaluate import array_function as array_function
from ._evaluate import compile_small as compile_small
from ._evaluate import evaluate_at_state as evaluate_at_state
from ._evaluate import evaluate_at_states as evaluate_at_states
from ._evaluate import evaluate_by_code as evaluate_by_code
from ._evaluate import evaluate_known as evaluate_known
from ._evaluate import find_dependence as find_dependence
from ._evaluate import translate_function as translate_function
from ._expressions import Program as Program
from ._foreign import compiler_is_here as compiler_is_here
from ._foreign import looks_for_nans as looks_for_nans
from ._foreign import machine_code_is_wanted as machine_code_is_wanted
from ._foreign import stays_here as stays_here
from ._foreign import to_leave_process as to_leave_process
from ._scalars import TranslationError as TranslationError
from ._tracing import JitByZeros as JitByZeros
from ._tracing import cached_or_untranslatable as cached_or_untranslatable
from ._tracing import forget as forget
