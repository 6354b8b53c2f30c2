"""One file a command; each has its `command`."""
