"""`teamctl top`: a team on the whole screen. It looks at files, and asks as the commands do."""
