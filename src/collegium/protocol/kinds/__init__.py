"""The kinds of questions of this package: one file for each, imported by `question.load_kinds`."""
