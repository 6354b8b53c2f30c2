"""One conversation with a model: its records, and the requests that follow from them."""
