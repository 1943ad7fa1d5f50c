"""Stock NCCL and RCCL: graph files with the order of their channels, and tables for tuner plugins."""
