"""Stock NCCL and RCCL: the graph files that say which order their channels take, and what tuner plugins read."""
