"""Working copies: a clone of the person's repository for each teammate that is to have one.

Agents write in a copy, so its settings, hooks and names are theirs: git runs there in a sandbox
only, see `sandboxed_git`. Only objects, which are checked, and numbers come out of it.
"""
