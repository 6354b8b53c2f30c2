"""The server of a model: its address, key, models and usage; the requests are in `teamd.models`."""
