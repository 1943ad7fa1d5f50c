"""Shows files as pictures: `syntony view`, and the display in notebooks.

file ──kinds.py──▶ maker ──▶ View (models.py: a few panels) ──page.py──▶ one HTML page
                                                             ──picture.py─▶ SVG, PDF, PNG
"""
