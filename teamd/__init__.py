"""A supervisor that forks one process per teammate, and the files through which they work."""

__version__ = "0.1.0"
