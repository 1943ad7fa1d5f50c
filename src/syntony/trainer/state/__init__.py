"""Weights and optimizer state: saved, loaded and moved between layouts."""
