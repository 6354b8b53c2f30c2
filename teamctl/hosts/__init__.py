"""A team on several machines: keys, certificates and the broker's configuration.

It needs the extra `hosts`. Only `teamctl hosts init`, `join`, `add` and `remove` load it.
"""
