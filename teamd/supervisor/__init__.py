"""Forks teammates, watches them, and does what it is asked in its inbox."""
