"""Plans, permissions and shutdowns: one file each, answered once, told for certain."""
