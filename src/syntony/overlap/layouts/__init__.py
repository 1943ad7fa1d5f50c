"""Searches layouts (how many ranks each parallelism gets): closed-form forecasts, then simulation of the best."""
