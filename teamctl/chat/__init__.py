"""Talking to the agent that leads: what it says as it says it, and what the team writes."""
