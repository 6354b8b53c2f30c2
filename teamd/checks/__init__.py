"""The checks of tasks: a process for each claim, and the place in which the check runs."""
