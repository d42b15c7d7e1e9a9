"""Label jobs of students from outside: a durable queue, the service that answers, the transport and the client."""
