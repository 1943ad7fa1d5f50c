"""Passes from Graph to Graph. Names: part i of an Op is `name/i`, a union is `reduce.5+4`."""
