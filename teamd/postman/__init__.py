"""The postman: the process that carries mail between this host and others."""
