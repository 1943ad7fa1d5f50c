"""What every room stands on: errors, commands, words, numbers and strict readers."""
