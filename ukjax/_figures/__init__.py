"""Plots, animations and files of a trajectory."""
