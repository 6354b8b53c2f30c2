"""The postman: the process that carries mail between the hosts of a team."""
