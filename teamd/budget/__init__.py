"""The budget: limits on the use of model calls, and the ledger that counts it."""
