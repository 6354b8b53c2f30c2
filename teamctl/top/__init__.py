"""`teamctl top`: a full-screen view of a team; it reads files and uses the commands' actions."""
