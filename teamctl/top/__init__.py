"""`teamctl top`: a full-screen view of a team, which reads files and acts as the commands do."""
