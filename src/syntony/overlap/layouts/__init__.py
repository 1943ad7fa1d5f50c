"""Layouts: how many ranks each parallelism gets, found by search: forecast in closed form, the best few simulated."""
