"""Scalar code for the acceleration of a system, found by tracing it: the fast path for batches."""

from ._lanes import Lanes as Lanes
from ._lanes import lanes as lanes
from ._moves import TranslationError as TranslationError
