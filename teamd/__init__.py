"""A supervisor that forks one process per teammate, and the files through which they work."""
