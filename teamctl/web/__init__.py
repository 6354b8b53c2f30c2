"""The team as a web page: a server on loopback that reads files and uses the actions of commands.

It is a separate process and needs the extra `web`; only `teamctl web` imports it.
"""
