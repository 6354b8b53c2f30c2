"""The supervisor: it forks teammates, watches them, and carries out the requests in its inbox."""
