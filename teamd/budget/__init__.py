"""The budget: what model calls may cost, and have cost."""
