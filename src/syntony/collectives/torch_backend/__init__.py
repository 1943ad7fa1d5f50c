"""The torch.distributed backend "syntony"."""
