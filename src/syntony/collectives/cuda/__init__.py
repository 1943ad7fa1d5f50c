"""Arrays on GPUs: by kernels where all ranks are on one host (group.py), through pinned memory elsewhere (staging.py).

Importing this package imports neither cupy nor torch, and needs no GPU.
"""
