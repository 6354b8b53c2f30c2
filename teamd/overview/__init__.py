"""The picture of a team that every face shows: from its files alone; nothing is touched."""
