"""Pipeline schedules: per device the order of its tasks."""
