"""Other worlds: environments for learning, exported simulations, PyTorch."""
