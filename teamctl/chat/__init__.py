"""The chat with the lead: its replies as they stream in, and mail from the team."""
