"""How the ranks of a group find each other."""
