"""The task board: one file a task."""
