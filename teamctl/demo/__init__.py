"""The demo: a scripted team in a temporary folder, and the checks of its results."""
