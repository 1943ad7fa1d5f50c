"""`syntony bench --device cuda` (session.py), and ranks on one GPU: `python -m syntony.benchmarks cuda one_gpu`."""
