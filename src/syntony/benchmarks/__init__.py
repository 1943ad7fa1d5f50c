"""How fast, compared with whom: a bench like nccl-tests, its peers, tables of measurements, and the demonstration."""
