"""Individual nearest neighbours at the party: the index over its own records, and each record's own budget."""
