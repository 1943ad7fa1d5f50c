"""Files: strict readers, writers of whole files or row by row, and formats shared by several packages."""
