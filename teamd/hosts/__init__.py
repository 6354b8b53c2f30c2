"""One team on several machines: its messages and files, without any networking."""
