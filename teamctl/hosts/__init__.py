"""A team on several machines: keys, certificates and the broker's configuration.

The modules of this package need the extra `hosts`, so `teamctl hosts` loads them
by `load_for_hosts`.
"""
