"""A sweep on several processes or machines: chunks as tasks of an executor, which write to the store themselves."""
