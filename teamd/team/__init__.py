"""A team's members and their states."""
