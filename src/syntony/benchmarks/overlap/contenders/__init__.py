"""The contenders of the tables of overlap, and the labs in which they run."""
