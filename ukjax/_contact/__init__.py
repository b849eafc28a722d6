"""Unilateral constraints in motion: gaps, impacts, and which contacts are closed, stick or slide."""
