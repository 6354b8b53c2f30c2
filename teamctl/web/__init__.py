"""The team as a page: a server of its own on loopback that only reads files, and acts as commands do.

It needs the extra `web`, and is loaded by `teamctl web` alone.
"""
