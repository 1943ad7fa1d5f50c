"""What `syntony bench --device cuda` can be asked for by name."""

from __future__ import annotations

from syntony import _core

ALGORITHMS = ("auto", *_core.algorithm_names("all_reduce"), "pull", "pull_two_shot", "nvls")
"""The builders, one-sided exchange (csrc/cuda/pull.hpp) and NVLink switches (csrc/cuda/switches/nvls.hpp). `auto`:
one-sided, all_reduce in two shots."""
PROTOCOLS = ("simple", "ll", "ll128", "bulk")
"""How messages travel; `bulk`: as simple, with copies by Hopper's copy engine."""
PEERS = ("nccl",)
