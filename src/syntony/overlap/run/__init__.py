"""Runs a plan's communication over torch.distributed."""
