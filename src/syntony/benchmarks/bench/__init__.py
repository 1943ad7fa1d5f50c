"""`syntony bench`."""
