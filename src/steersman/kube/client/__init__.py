"""The client: verbs on objects, lists and watches, discovery, subresources."""
