"""Bridges to other software: environments for reinforcement learning, exported simulations, PyTorch."""
