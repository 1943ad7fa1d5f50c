"""What published systems do, a file per idea; the list of all is policies/table.py."""
