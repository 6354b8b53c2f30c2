"""Working copies: a clone of the person's repository for each teammate that is to have one.

Agents write in a copy, so its settings, hooks and names are theirs: git runs there in a sandbox
and nowhere else, see `sandboxed_git`. What comes out of it is objects, which are checked, and numbers.
"""
