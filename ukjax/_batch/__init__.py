"""Batches of integrations without lockstep: a pool of lanes, each at a step of its own run."""

from ._adjoint import Pooled as Pooled
from ._adjoint import can_be_pooled as can_be_pooled
