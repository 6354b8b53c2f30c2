"""One team over several machines: the words and files of it, without any network."""
