"""Passes: each makes a Graph of a Graph. Names: part i of an Op is `name/i`, a union is `reduce.5+4`."""
