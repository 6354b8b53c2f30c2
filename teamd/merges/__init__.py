"""The merge queue: commits that wait to be merged into the team's branch, and recent results."""
