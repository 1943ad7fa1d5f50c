"""`syntony preflight`: checks whether the hosts of a job are fit for it before it starts."""
