"""The kinds of questions of this package: one file for each, imported by the first look at a kind."""
