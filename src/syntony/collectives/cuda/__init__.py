"""Arrays on GPUs: by kernels if all ranks are on one host (group.py), else through pinned memory (staging.py).

Importing this package imports neither cupy nor torch, and needs no GPU.
"""
