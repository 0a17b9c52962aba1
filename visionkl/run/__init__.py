"""The commands, each a story read from top to bottom."""
