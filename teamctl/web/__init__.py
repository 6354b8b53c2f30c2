"""The team as a web page: a server on loopback that reads files and acts as commands do.

It is a separate process, needs the extra `web`, and only `teamctl web` imports it.
"""
