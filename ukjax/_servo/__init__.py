"""Servo control: the law and the closed loop."""
