"""Pictures of terminals for the documents: what `make pictures` records."""
