"""What `syntony bench --device cuda` can be asked for by name."""

from __future__ import annotations

ALGORITHMS = ("pull", "pull_two_shot", "nvls")
"""Beside those of the host: one-sided exchange (csrc/cuda/pull.hpp) and NVLink switches (csrc/cuda/switches/nvls.hpp).
`auto` is one-sided, all_reduce in two shots."""
PROTOCOLS = ("simple", "ll", "ll128", "bulk")
"""How messages travel; `bulk`: as simple, with copies by Hopper's copy engine."""
PEERS = ("nccl",)
