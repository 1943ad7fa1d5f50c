"""Shared by all other packages: errors, parts of the command line, text, numbers and strict readers."""
