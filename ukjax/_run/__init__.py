"""One run: its options, its start, the integration, and the trajectory it returns."""
