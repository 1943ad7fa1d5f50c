"""Files: schedules and programs, in and out."""
