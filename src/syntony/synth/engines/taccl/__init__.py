"""Engine `taccl`: search.py runs it; sketch.py says what a sketch is, SKETCH.md how its file is written."""
