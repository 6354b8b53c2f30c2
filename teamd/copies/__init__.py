"""Working copies: clones of the person's repository, one for each teammate that has its own.

Agents can write everything in a copy, including its git settings and hooks. So git runs there only
in a sandbox, see `sandboxed_git`. Only checked objects and numbers leave a copy.
"""
