"""The demo: a team in a temporary folder, the story that its model tells, and what came of it."""
