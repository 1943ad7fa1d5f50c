"""What all other packages use: errors, parts of the command line, text, numbers and strict readers."""
