"""The task board: tasks with owners, checks and dependencies, one file for each."""
