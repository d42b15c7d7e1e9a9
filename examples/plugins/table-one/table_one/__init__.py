"""Table one: how many records have which value in which column, by class; masked, noised and charged."""
