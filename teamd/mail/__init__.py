"""Mail between members of teams."""
