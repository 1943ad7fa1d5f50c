"""Who sends what to whom in a job, one pattern a file."""
