"""The files of a team: crash-safe writes, locks, paths, and the watch over folders."""
