"""Communication patterns of jobs, one per file."""
