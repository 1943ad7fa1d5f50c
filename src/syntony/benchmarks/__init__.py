"""How fast, against whom: the nccl-tests-like bench, its peers, and the demonstration."""
