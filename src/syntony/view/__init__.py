"""Files as pictures: `syntony view`, and what notebooks show.

file ──kinds.py──▶ maker ──▶ View (models.py: a few panels) ──page.py──▶ one HTML page
                                                             ──picture.py─▶ SVG, PDF, PNG
"""
