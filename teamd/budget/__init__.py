"""The budget: limits on the usage of model calls, and the ledger that records it."""
