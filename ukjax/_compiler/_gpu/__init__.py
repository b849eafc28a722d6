"""Programs and whole runs as kernels of a GPU: one thread is one member, or one run."""
