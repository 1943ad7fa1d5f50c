"""MSCCL++ plans."""
