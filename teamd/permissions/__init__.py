"""Judges tool calls by the permission rules of team.toml."""
