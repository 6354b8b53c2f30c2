"""Teams over several hosts: words and files, and nothing of a network."""
