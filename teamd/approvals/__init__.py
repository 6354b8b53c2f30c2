"""Plans and shutdowns that are asked for: one file each, answered once, told for certain."""
