"""What model calls may cost, and have cost."""
