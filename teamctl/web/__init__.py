"""The team as a page: a server on loopback that only reads files, and acts as commands do.

It is a process of its own. It needs the extra `web`, and is loaded by `teamctl web` alone.
"""
