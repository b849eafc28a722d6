"""Levels of constraints: their algebra, modules, and the recursive formula."""
