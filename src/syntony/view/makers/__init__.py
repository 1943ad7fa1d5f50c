"""Makes the Views of files: one module per kind, listed in `view/kinds.py`."""
