"""The files that processes share: mail, roster, transcripts, requests."""
