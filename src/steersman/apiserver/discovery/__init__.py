"""What clients learn about the API: discovery documents, OpenAPI v3, APIServices; and the protobuf encoding."""
