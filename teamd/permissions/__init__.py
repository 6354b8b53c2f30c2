"""Permissions: what the rules of team.toml say of a tool call. Pure: no files, no processes."""
