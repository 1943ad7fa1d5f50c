"""What a run must not lose: weights and the optimizer's memories, saved, loaded and moved between layouts."""
