"""A team over several machines: keys, certificates and the broker's configuration.

It needs the extra `hosts`, and is loaded by `teamctl hosts init`, `join`, `add` and `remove` alone.
"""
