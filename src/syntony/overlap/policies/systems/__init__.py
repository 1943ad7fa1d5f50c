"""Methods of published systems, one file per idea; policies/table.py lists them all."""
