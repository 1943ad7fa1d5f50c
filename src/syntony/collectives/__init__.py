"""The runtime: the Communicator, its bootstraps, and (through torch) the "syntony" backend.

Users import its names from `syntony`. `import torch` imports this package through its entry point (autoload.py), so
this file imports nothing.
"""
