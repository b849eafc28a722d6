"""Imported before NumPy: its linear algebra on one thread. Several on one core wait for each other, 30 times as long."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("UKJAX_CACHE", "0")  # so that a first call compiles
