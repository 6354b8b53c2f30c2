"""Approvals: plans, permissions and shutdowns that one member asks of another."""
