"""Individual nearest neighbours at the coordinator: features, radii and queries, all from the public pool alone."""
