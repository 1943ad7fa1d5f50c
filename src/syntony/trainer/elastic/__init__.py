"""Elastic jobs: they continue when ranks are lost, and grow when ranks come back."""
