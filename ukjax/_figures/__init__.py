"""Plots, animations, views in the browser and files of a trajectory."""
