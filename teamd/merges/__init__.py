"""The merge queue: what waits to be merged into the team's branch, and what became of it."""
