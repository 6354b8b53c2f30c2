"""Shared by the commands of `teamd` and `teamctl`: options, terminal, errors as exit codes."""
