"""The mail of the person: sending it, reading it, and waiting until a message is read."""
