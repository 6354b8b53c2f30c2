"""One teammate's life: mail in, model, tools, transcript."""
