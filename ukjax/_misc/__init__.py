"""Errors, types, checks of arguments, and other things every room needs."""
