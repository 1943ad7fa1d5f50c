"""`syntony bench --device cuda` (session.py), and several ranks on one GPU: `python -m benchmarks.cuda one_gpu`."""
