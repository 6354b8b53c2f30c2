"""The person's side: spawn, send, look, shut down."""
