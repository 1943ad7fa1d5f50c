"""Programs on GPUs: as generated CUDA source.

    Program ──zero_copy──▶ which messages need no copy ──source──▶ CUDA text ──compiled──▶ a kernel (NVRTC, cupy)
                                       arrays ──launch──▶ addresses, sizes, flags ──────────▶ launched

Importing this package imports neither cupy nor torch, and needs no GPU.
"""
