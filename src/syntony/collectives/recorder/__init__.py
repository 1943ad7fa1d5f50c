"""The flight records of a group, and `syntony trace`, which reads them."""
