"""A teammate's conversation as a file of records."""
