"""Identification: parameters, initial states and sensor offsets from measured series, with what they are worth."""

from ._identify import identify as identify
from ._recording import Recording as Recording
from ._result import IdentifyResult as IdentifyResult
from ._result import Prediction as Prediction
