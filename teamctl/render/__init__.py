"""Text for terminals and programs: tables, mail, conversations, Markdown and JSON."""
