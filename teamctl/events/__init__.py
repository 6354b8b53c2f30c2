"""Everything that happens in a team, found in its files alone."""
