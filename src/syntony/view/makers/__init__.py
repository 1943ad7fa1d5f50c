"""From files of each kind to their View: one file per kind, listed in `view/kinds.py`."""
