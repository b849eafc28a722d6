"""Servo control: the inputs that make a system follow given constraints, and the closed loop."""
