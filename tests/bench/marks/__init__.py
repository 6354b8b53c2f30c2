"""A folder for PYTHONPATH, not a package to import: see `sitecustomize`."""
