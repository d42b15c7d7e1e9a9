"""Label jobs of students from outside: a durable queue, the desk that answers for it, the transport and the client."""
