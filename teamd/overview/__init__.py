"""The state of a team, read from its files only; `team`, `top`, `web` and `chat` show it."""
