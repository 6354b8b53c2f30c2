"""What a command of a teammate can reach: the walls around it, and whether they stand."""
