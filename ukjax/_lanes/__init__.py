"""Scalar code for the acceleration of a system, found by tracing it: the fast path for batches."""

from ._code import Code as Code
from ._code import code_for as code_for
from ._lanes import Lanes as Lanes
from ._lanes import lanes as lanes
from ._scalars import TranslationError as TranslationError
